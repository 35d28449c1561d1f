package ecds

import (
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/types/known/structpb"
)

func TestReadNode(t *testing.T) {
	meta := func(m map[string]any) *structpb.Struct {
		s, err := structpb.NewStruct(m)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	gated := meta(map[string]any{MetadataDefaultGate: true})
	text := func(version string) *corev3.Node {
		return &corev3.Node{Id: "i", Cluster: "cart", UserAgentName: "envoy", UserAgentVersionType: &corev3.Node_UserAgentVersion{UserAgentVersion: version}}
	}
	with := func(n *corev3.Node, m *structpb.Struct) *corev3.Node {
		n.Metadata = m
		return n
	}
	for _, tc := range []struct {
		name    string
		node    *corev3.Node
		service string
		form    form
		refused string // part of the reason; empty: not refused
	}{
		{"1.40", envoyNode("cart", "i", 40), "cart", formFull, ""},
		{"1.39", envoyNode("cart", "i", 39), "cart", formWrapped, ""},
		{"1.39 with a default gate", with(envoyNode("cart", "i", 39), gated), "cart", formWrapped, ""},
		{"1.38", envoyNode("cart", "i", 38), "cart", formDefaultGate, "1.38.0"},
		{"1.38 with a default gate", with(envoyNode("cart", "i", 38), gated), "cart", formDefaultGate, ""},
		{"1.37 with a default gate", with(envoyNode("cart", "i", 37), gated), "cart", formDefaultGate, ""},
		{"1.36 with a default gate", with(envoyNode("cart", "i", 36), gated), "cart", formDefaultGate, ""},
		{"1.36 that says no", with(envoyNode("cart", "i", 36), meta(map[string]any{MetadataDefaultGate: false})), "cart", formDefaultGate, "default_config"},
		{"1.35 with a default gate", with(envoyNode("cart", "i", 35), gated), "cart", formFull, "1.39.0 or later"},
		{"version as text", text("1.37.2-dev"), "cart", formDefaultGate, "1.37.2"},
		{"later version as text", text("1.41.0"), "cart", formFull, ""},
		{"nonsense for a version", text("next"), "cart", formFull, "user_agent_build_version"},
		{"no version", &corev3.Node{Id: "i", Cluster: "cart", UserAgentName: "envoy"}, "cart", formFull, "user_agent_build_version"},
		{"another proxy without a version", &corev3.Node{Id: "i", Cluster: "cart", UserAgentName: "tfiproxy"}, "cart", formFull, ""},
		{"service by metadata", with(envoyNode("istio-cluster", "i", 40), meta(map[string]any{MetadataService: "cart"})), "cart", formFull, ""},
		{"no service", envoyNode("", "i", 40), "", formFull, MetadataService},
		{"no node", nil, "", formFull, MetadataService},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := readNode(tc.node)
			if got.service != tc.service || got.form != tc.form && tc.refused == "" {
				t.Errorf("service %q form %d, want %q %d", got.service, got.form, tc.service, tc.form)
			}
			if (got.refused == "") != (tc.refused == "") || !strings.Contains(got.refused, tc.refused) {
				t.Errorf("refused: %q, want %q in it", got.refused, tc.refused)
			}
		})
	}
}

// Whatever a sidecar says about itself, it is either refused or has a version
// that may get the gate.
func FuzzReadNode(f *testing.F) {
	for _, v := range []string{"1.40.0", "1.37.2-dev", "1.38", "", "..", "v1.2.3", "99999999999.1.1"} {
		f.Add("cart", "i", "envoy", v, false)
	}
	f.Fuzz(func(t *testing.T, service, instance, agent, text string, gated bool) {
		got := readNode(&corev3.Node{
			Id: instance, Cluster: service, UserAgentName: agent,
			UserAgentVersionType: &corev3.Node_UserAgentVersion{UserAgentVersion: text},
			Metadata:             &structpb.Struct{Fields: map[string]*structpb.Value{MetadataDefaultGate: structpb.NewBoolValue(gated)}},
		})
		if got.refused != "" || agent != "envoy" {
			return
		}
		v, known := proxyVersion(&corev3.Node{UserAgentVersionType: &corev3.Node_UserAgentVersion{UserAgentVersion: text}})
		if !known || v.less(oldest) || v.less(fullGate) && (!gated || got.form != formDefaultGate) {
			t.Errorf("version %q gets form %d", text, got.form)
		}
	})
}
