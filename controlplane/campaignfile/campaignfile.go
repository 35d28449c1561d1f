// Package campaignfile reads and writes campaign files.
//
// A campaign file is YAML in the shape of sequencefi.campaign.v1.CampaignSpec;
// package protoyaml says how its values are written. A fault may be written as
// a text (see [ParseFault]): `error`, `error 500`, `abort`, `drop 5s`,
// `delay 200ms`. The package carries a commented example and a JSON schema for
// editors.
package campaignfile

import (
	_ "embed"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/sequencefi/sequencefi/controlplane/bounded"
	"github.com/sequencefi/sequencefi/controlplane/campaignfile/protoyaml"
	campaignv1 "github.com/sequencefi/sequencefi/proto/sequencefi/campaign/v1"
	tfiv1 "github.com/sequencefi/sequencefi/proto/sequencefi/tfi/v1"
	"github.com/sequencefi/sequencefi/proto/valid"
)

// DefaultTopology is the topology file's name where a campaign names none.
const DefaultTopology = "topology.yaml"

// maxFileSize bounds a campaign file.
const maxFileSize = 4 << 20

//go:embed example.yaml
var example []byte

//go:embed campaign.schema.json
var schema []byte

// Example returns a commented campaign file. The caller owns it.
func Example() []byte { return append([]byte(nil), example...) }

// Schema returns the JSON schema of campaign files. The caller owns it.
func Schema() []byte { return append([]byte(nil), schema...) }

// Parse reads and judges a campaign in YAML or JSON.
// Errors: a [*valid.InvalidError] that lists every problem, with its line.
func Parse(b []byte) (*campaignv1.CampaignSpec, error) {
	var spec campaignv1.CampaignSpec
	lines, err := protoyaml.Unmarshal(b, &spec, Options())
	if err != nil {
		return nil, err
	}
	if problems := valid.CampaignSpec(&spec); len(problems) > 0 {
		return nil, valid.Error(lines.Locate(problems))
	}
	return &spec, nil
}

// Load reads a campaign file. Errors: those of reading the file, or those of
// [Parse] with the file's name.
func Load(path string) (*campaignv1.CampaignSpec, error) {
	b, err := bounded.File(path, maxFileSize)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("campaign file %s: %w (sequencefi init writes one)", path, fs.ErrNotExist)
	case errors.Is(err, bounded.ErrTooLarge):
		return nil, fmt.Errorf("campaign file %s: %w", path, valid.Error([]valid.Problem{{Want: fmt.Sprintf("must have at most %d bytes", maxFileSize)}}))
	case err != nil:
		return nil, fmt.Errorf("campaign file: %w", err)
	}
	spec, err := Parse(b)
	if err != nil {
		return nil, fmt.Errorf("campaign file %s: %w", path, err)
	}
	return spec, nil
}

// TopologyPath returns where the topology file of a campaign is: its path is
// relative to the campaign file.
func TopologyPath(campaignPath string, spec *campaignv1.CampaignSpec) string {
	name := spec.GetTopology()
	if name == "" {
		name = DefaultTopology
	}
	if filepath.IsAbs(name) {
		return name
	}
	return filepath.Join(filepath.Dir(campaignPath), name)
}

// Marshal writes a campaign as a campaign file.
func Marshal(spec *campaignv1.CampaignSpec) ([]byte, error) {
	return protoyaml.Marshal(spec)
}

// Options are how campaign files, and files that contain a campaign, are read.
func Options() protoyaml.Options {
	return protoyaml.Options{Shorthands: map[protoreflect.FullName]protoyaml.Shorthand{
		"sequencefi.campaign.v1.NamedFault": func(text string) (proto.Message, error) { return ParseFault(text) },
		"sequencefi.tfi.v1.Fault": func(text string) (proto.Message, error) {
			f, err := ParseFault(text)
			return f.GetFault(), err
		},
	}}
}

// errFault says how faults are written.
var errFault = errors.New(`must be a fault like "error", "error 500", "abort", "drop", "drop 5s" or "delay 200ms"`)

// maxName is how long the name of a fault may be.
const maxName = 32

// ParseFault reads a fault as people write it and names it after the text, with
// a hyphen for the space, and what no name may have as it may.
func ParseFault(text string) (*campaignv1.NamedFault, error) {
	kind, arg, more := strings.Cut(strings.TrimSpace(text), " ")
	arg = strings.TrimSpace(arg)
	fault := &tfiv1.Fault{}
	switch {
	case kind == "error":
		e := &tfiv1.Error{}
		if more {
			status, err := strconv.ParseUint(arg, 10, 16)
			if err != nil {
				return nil, errFault
			}
			e.HttpStatus = uint32(status)
		}
		fault.Kind = &tfiv1.Fault_Error{Error: e}
	case kind == "abort" && !more:
		fault.Kind = &tfiv1.Fault_Abort{Abort: &tfiv1.Abort{}}
	case kind == "drop" && !more:
		fault.Kind = &tfiv1.Fault_Drop{Drop: &tfiv1.Drop{}}
	case kind == "drop" || kind == "delay" && more:
		d, err := time.ParseDuration(arg)
		if err != nil {
			return nil, errFault
		}
		if kind == "drop" {
			fault.Kind = &tfiv1.Fault_Drop{Drop: &tfiv1.Drop{Limit: durationpb.New(d)}}
			break
		}
		fault.Kind = &tfiv1.Fault_Delay{Delay: &tfiv1.Delay{Distribution: &tfiv1.Delay_Fixed{Fixed: durationpb.New(d)}}}
	default:
		return nil, errFault
	}
	name := kind
	if more {
		name += "-" + strings.NewReplacer("µ", "u", "μ", "u", "+", "").Replace(arg)
	}
	if len(name) > maxName {
		return nil, errFault // digits that nobody needs
	}
	return &campaignv1.NamedFault{Name: name, Fault: fault}, nil
}
