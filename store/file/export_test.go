package file

import (
	"errors"
	"os"
)

// Break has every further write of the log and of payloads fail, as on a full disk.
func (s *Store) Break() error {
	var errs []error
	for _, f := range append([]**os.File{&s.log}, &s.payloads.segments[len(s.payloads.segments)-1].file) {
		readOnly, err := os.Open((*f).Name())
		errs = append(errs, err, (*f).Close())
		*f = readOnly
	}
	return errors.Join(errs...)
}
