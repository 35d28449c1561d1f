package protoyaml

import (
	"errors"
	"testing"

	campaignv1 "github.com/sequencefi/sequencefi/proto/sequencefi/campaign/v1"
	"github.com/sequencefi/sequencefi/proto/valid"
)

func TestSingle(t *testing.T) {
	const another = "must be one YAML document: another one has line "
	for text, want := range map[string]string{
		"":                            "",
		"name: a\n":                   "",
		"---\nname: a\n":              "",
		"---\nname: a\n...\n":         "",
		"name: a\n---\n":              "",
		"name: a\n--- # no more\n":    "",
		"a: [":                        "",
		"name: a\n---\nname: b\n":     another + "3",
		"name: a\n---\n---\nname: b":  another + "4",
		"name: a\n---\n[1]\n":         another + "3",
		"{\"name\": \"a\"}\n--- text": another + "2",
	} {
		err := Single([]byte(text))
		if want == "" && err != nil || want != "" && (err == nil || err.Error() != want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
	if _, err := Unmarshal([]byte("name: a\n---\nname: b\n"), &campaignv1.CampaignSpec{}, Options{}); !errors.Is(err, valid.ErrInvalid) {
		t.Errorf("read nevertheless: %v", err)
	}
}
