package tfiproxy

import "github.com/sequencefi/sequencefi/plugin/tfiproxy/config"

// The configuration is that of package config, which says what each field means.
type (
	// Config says what one sidecar does.
	Config = config.Config
	// Listener is one port of the sidecar.
	Listener = config.Listener
	// ServerTLS terminates TLS on a listener.
	ServerTLS = config.ServerTLS
	// ClientTLS originates TLS towards an upstream.
	ClientTLS = config.ClientTLS
	// PolicySource says where the policy comes from.
	PolicySource = config.PolicySource
	// Limits bound what peers may cost.
	Limits = config.Limits
	// Timeouts bound how long peers may take.
	Timeouts = config.Timeouts
)

// A head that is allowed fits into a large buffer.
const _ = uint(largeBuffer - config.MaxHeadBytes)
