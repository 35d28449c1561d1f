// Package report shows what a campaign came to: on the terminal, as JSON, as
// JUnit for CI, and as one HTML page that needs nothing else.
//
// It only renders a sequencefi.campaign.v1.CampaignReport; it judges nothing.
// Whatever came from traces or answers is untrusted: it is escaped for where it
// goes, control characters do not reach the terminal, and long values are cut.
package report

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"google.golang.org/protobuf/encoding/protojson"

	campaignv1 "github.com/sequencefi/sequencefi/proto/sequencefi/campaign/v1"
)

// Names of the files that [Write] makes.
const (
	JSONFile    = "report.json"
	HTMLFile    = "report.html"
	JUnitFile   = "junit.xml"
	SummaryFile = "summary.json"
)

// Write puts the report's four files into dir, which it makes if need be. A file
// is replaced as a whole or not at all.
func Write(dir string, r *campaignv1.CampaignReport) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	var errs []error
	for _, f := range []struct {
		name  string
		write func(io.Writer, *campaignv1.CampaignReport) error
	}{{JSONFile, JSON}, {HTMLFile, HTML}, {JUnitFile, JUnit}, {SummaryFile, writeSummary}} {
		var b bytes.Buffer
		err := f.write(&b, r)
		if err == nil {
			err = ReplaceFile(filepath.Join(dir, f.name), b.Bytes())
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("report: %s: %w", f.name, err))
		}
	}
	return errors.Join(errs...)
}

// ReplaceFile writes beside the file and renames, so that nobody ever sees half
// of it, and what was there stays if writing fails.
func ReplaceFile(path string, b []byte) error {
	tmp := path + ".new"
	if err := os.WriteFile(tmp, b, 0o600); err != nil {
		return errors.Join(err, os.Remove(tmp))
	}
	return os.Rename(tmp, path)
}

// JSON writes the report in protobuf's JSON form.
func JSON(w io.Writer, r *campaignv1.CampaignReport) error {
	compact, err := protojson.Marshal(r)
	if err != nil {
		return err
	}
	// protojson varies its white space on purpose; a file that is compared and
	// committed must not.
	var b bytes.Buffer
	if err := json.Indent(&b, compact, "", "  "); err != nil {
		return err
	}
	b.WriteByte('\n')
	_, err = w.Write(b.Bytes())
	return err
}

// ReadJSON reads what [JSON] wrote.
func ReadJSON(b []byte) (*campaignv1.CampaignReport, error) {
	var r campaignv1.CampaignReport
	if err := (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(b, &r); err != nil {
		return nil, fmt.Errorf("report: not a report.json: %w", err)
	}
	return &r, nil
}
