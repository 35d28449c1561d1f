package campaign

import (
	"encoding/json"
	"errors"
	"fmt"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
	"sigs.k8s.io/yaml"

	"github.com/sequencefi/sequencefi/controlplane/bounded"
	"github.com/sequencefi/sequencefi/controlplane/campaignfile/protoyaml"
	"github.com/sequencefi/sequencefi/controlplane/topology"
	campaignv1 "github.com/sequencefi/sequencefi/proto/sequencefi/campaign/v1"
	"github.com/sequencefi/sequencefi/proto/valid"
)

// ErrReplayFile says that a replay file cannot be used.
var ErrReplayFile = errors.New("not a replay file")

// NewReplay makes the replay of a finding: its smallest witness, with the others beside it.
// Errors: ErrReplayFile for a finding without witness.
func NewReplay(report *campaignv1.CampaignReport, t *topology.Topology, f *campaignv1.Finding) (*campaignv1.Replay, error) {
	if len(f.GetWitnesses()) == 0 {
		return nil, fmt.Errorf("%w: finding %s has no witness", ErrReplayFile, f.GetId())
	}
	written, err := t.Marshal()
	if err != nil {
		return nil, fmt.Errorf("write the topology down: %w", err)
	}
	asJSON, err := yaml.YAMLToJSON(written)
	if err != nil {
		return nil, fmt.Errorf("write the topology down: %w", err)
	}
	content := &structpb.Struct{}
	if err := protojson.Unmarshal(asJSON, content); err != nil {
		return nil, fmt.Errorf("write the topology down: %w", err)
	}
	witness := f.GetWitnesses()[0]
	r := &campaignv1.Replay{
		Spec: report.GetSpec(), Topology: content, Tfics: witness.GetTfics(), Signature: f.GetSignature(),
		Finding: f.GetId(), Fault: witness.GetFault(), Pattern: witness.GetPattern(), Version: report.GetVersion(),
	}
	for _, w := range f.GetWitnesses()[1:] {
		r.Others = append(r.Others, &campaignv1.ReplayWitness{Tfics: w.GetTfics(), Fault: w.GetFault(), Pattern: w.GetPattern()})
	}
	return proto.CloneOf(r), nil
}

// Witnesses returns all witnesses that a replay has, the smallest first.
func Witnesses(r *campaignv1.Replay) []*campaignv1.ReplayWitness {
	return append([]*campaignv1.ReplayWitness{{Tfics: r.GetTfics(), Fault: r.GetFault(), Pattern: r.GetPattern()}}, r.GetOthers()...)
}

// MarshalReplay writes a replay file (YAML), with a head for people.
func MarshalReplay(r *campaignv1.Replay) ([]byte, error) {
	encoded, err := protojson.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("write replay: %w", err)
	}
	// protojson varies its spaces on purpose; files should not.
	var tree any
	if err := json.Unmarshal(encoded, &tree); err != nil {
		return nil, fmt.Errorf("write replay: %w", err)
	}
	body, err := yaml.Marshal(tree)
	if err != nil {
		return nil, fmt.Errorf("write replay: %w", err)
	}
	quoted, err := json.Marshal(r.GetSignature().GetSummary()) // one line, whatever an answer had in it
	if err != nil {
		return nil, fmt.Errorf("write replay: %w", err)
	}
	head := fmt.Sprintf("# Finding %s: %s\n# See it again with: sequencefi replay THIS-FILE\n", r.GetFinding(), quoted)
	return append([]byte(head), body...), nil
}

// ParseReplay reads a replay file and returns it with its topology. Errors: ErrReplayFile,
// valid.ErrInvalid with all problems of the file, and topology.ErrInvalid.
func ParseReplay(b []byte) (*campaignv1.Replay, *topology.Topology, error) {
	asJSON, err := yaml.YAMLToJSONStrict(b)
	if err != nil {
		return nil, nil, fmt.Errorf("%w: %w", ErrReplayFile, err)
	}
	if string(asJSON) == "null" {
		return nil, nil, fmt.Errorf("%w: it is empty", ErrReplayFile)
	}
	if err := protoyaml.Single(b); err != nil {
		return nil, nil, fmt.Errorf("%w: %w", ErrReplayFile, err)
	}
	r := &campaignv1.Replay{}
	if err := protojson.Unmarshal(asJSON, r); err != nil {
		return nil, nil, fmt.Errorf("%w: %w", ErrReplayFile, err)
	}
	if err := valid.Error(valid.Replay(r)); err != nil {
		return nil, nil, err
	}
	t, err := topologyOf(r)
	if err != nil {
		return nil, nil, err
	}
	return r, t, nil
}

func topologyOf(r *campaignv1.Replay) (*topology.Topology, error) {
	content, err := protojson.Marshal(r.GetTopology())
	if err != nil {
		return nil, fmt.Errorf("%w: topology: %w", ErrReplayFile, err)
	}
	t, err := topology.Parse(content)
	if err != nil {
		return nil, fmt.Errorf("topology: %w", err)
	}
	return t, nil
}

// LoadReplay reads a replay file from disk; see ParseReplay.
func LoadReplay(path string) (*campaignv1.Replay, *topology.Topology, error) {
	const most = 16 << 20
	b, err := bounded.File(path, most)
	if errors.Is(err, bounded.ErrTooLarge) {
		return nil, nil, fmt.Errorf("%w: %w", ErrReplayFile, err)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("read replay file: %w", err)
	}
	r, t, err := ParseReplay(b)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", path, err)
	}
	return r, t, nil
}
