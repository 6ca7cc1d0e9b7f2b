package file

import (
	"errors"
	"os"

	"github.com/headway-rl/headway/loop/trace"
)

// Break has every further write of the log and of payloads fail, as on a full disk.
func (s *Store) Break() error {
	var errs []error
	for _, f := range []**os.File{&s.logFile, &s.payloads.segments[len(s.payloads.segments)-1].file} {
		readOnly, err := os.Open((*f).Name())
		errs = append(errs, err, (*f).Close())
		*f = readOnly
	}
	log, err := trace.OpenLog(s.logFile, true, trace.Mark{})
	s.log = log
	return errors.Join(append(errs, err)...)
}
