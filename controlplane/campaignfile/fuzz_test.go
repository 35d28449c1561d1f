package campaignfile

import (
	"regexp"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
)

// faultName is what a campaign may call a fault.
var faultName = regexp.MustCompile(`^[A-Za-z0-9._-]{1,32}$`)

// FuzzParseFault: what is read as a fault has a name that a campaign takes, and that means the
// same fault with the space in the place of the hyphen.
func FuzzParseFault(f *testing.F) {
	for _, seed := range []string{
		"error", "error 500", "error  00500", "abort", "abort 1", "drop", "drop 5s", "delay 200ms", "delay -1s", "delay +1s", "delay 500µs", "delay 1h2m3.5s", "error 70000", "", "Error",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		fault, err := ParseFault(text)
		if err != nil {
			return
		}
		if fault.GetFault().GetKind() == nil || !faultName.MatchString(fault.GetName()) {
			t.Fatalf("%q is %v", text, fault)
		}
		again, err := ParseFault(strings.Replace(fault.GetName(), "-", " ", 1))
		if err != nil || !proto.Equal(fault, again) {
			t.Errorf("%v became %v, %v", fault, again, err)
		}
	})
}
