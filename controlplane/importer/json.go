package importer

import (
	"encoding/json"
	"errors"
	"fmt"
)

// plainJSON says what is wrong with a document without a word of the types that it is
// read into.
func plainJSON(err error) error {
	wrong := (*json.UnmarshalTypeError)(nil)
	switch {
	case !errors.As(err, &wrong):
		return err
	case wrong.Field == "":
		return fmt.Errorf("an object is wanted, found %s", wrong.Value)
	}
	return fmt.Errorf("%s: found %s", wrong.Field, wrong.Value)
}
