package jetstream

import (
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"
)

// Another process reads the files of a run from the first one on, and makes and changes nothing before.
func TestOpenObjects(t *testing.T) {
	o := Options{URL: startServer(t, nil), Run: "files", PayloadBytesMax: 64 << 20}
	s := open(t, o)
	before := state(t, s)
	reader, err := OpenObjects(t.Context(), Options{URL: o.URL, Run: o.Run})
	must(t, err)
	if _, err := reader.List(t.Context(), ""); !errors.Is(err, jetstream.ErrBucketNotFound) {
		t.Errorf("before the first file: %v", err)
	}
	if after := state(t, s); after != before {
		t.Errorf("the run's streams are %+v, and were %+v", after, before)
	}
	files, err := s.Objects(t.Context())
	must(t, err)
	_, err = files.Put(t.Context(), "a", strings.NewReader("text"))
	must(t, err)
	r, err := reader.Open(t.Context(), "a")
	must(t, err)
	if text, err := io.ReadAll(r); string(text) != "text" || err != nil {
		t.Errorf("the file is %q (%v)", text, err)
	}
	must(t, errors.Join(r.Close(), reader.Close(), s.Holding()))
	if info, err := s.data.Info(t.Context()); err != nil || info.Config.MaxBytes != o.PayloadBytesMax {
		t.Errorf("the payloads have %d bytes (%v)", info.Config.MaxBytes, err)
	}
}
