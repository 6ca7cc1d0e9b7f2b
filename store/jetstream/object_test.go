package jetstream

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

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

// No time of the client library bounds a file, however long it takes. One that stands still is given up, and so is one whose
// reader is told to end.
func TestObjectsTakeTheirTime(t *testing.T) {
	s := open(t, Options{URL: startServer(t, nil), Run: "slow"})
	o, err := s.Objects(t.Context())
	must(t, err)
	text := strings.Repeat("weights ", 400_000)
	_, err = o.Put(t.Context(), "a", strings.NewReader(text))
	must(t, err)
	hasty, err := jetstream.New(s.control, jetstream.WithDefaultTimeout(time.Nanosecond))
	must(t, err)
	bound, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	o.bucket, err = hasty.ObjectStore(bound, s.names.objects)
	must(t, err)
	r, err := o.Open(t.Context(), "a")
	must(t, err)
	if read, err := io.ReadAll(r); string(read) != text || err != nil {
		t.Errorf("read %d bytes of %d (%v)", len(read), len(text), err)
	}
	must(t, r.Close())

	stream, err := s.js.Stream(t.Context(), "OBJ_"+s.names.objects)
	must(t, err)
	must(t, stream.Purge(t.Context(), jetstream.WithPurgeSubject("$O."+s.names.objects+".C.>"))) // nothing comes of the file
	ending, end := context.WithCancel(t.Context())
	r, err = o.Open(ending, "a")
	must(t, err)
	end()
	if _, err := r.Read(make([]byte, 1)); !errors.Is(err, context.Canceled) {
		t.Errorf("told to end: %v", err)
	}
	must(t, r.Close())
	o.silence = time.Millisecond
	r, err = o.Open(t.Context(), "a")
	if err == nil { // else it was late before its first byte
		_, err = r.Read(make([]byte, 1))
		must(t, r.Close())
	}
	if !errors.Is(err, errSilent) {
		t.Errorf("standing still: %v", err)
	}
}

// half gives some bytes, and has its process end then.
type half struct {
	left int
	end  func()
}

func (h *half) Read(p []byte) (int, error) {
	if h.left <= 0 {
		h.end()
		return 0, io.ErrUnexpectedEOF
	}
	n := min(len(p), h.left)
	h.left -= n
	return n, nil
}

// TestHalfOfAFile: a process that is killed leaves a half, and a later one removes it.
func TestHalfOfAFile(t *testing.T) {
	o := Options{URL: startServer(t, nil), Run: "half"}
	s := open(t, o)
	files, err := s.Objects(t.Context())
	must(t, err)
	if _, err = files.Put(t.Context(), "v/1", &half{left: 8 << 20, end: func() { _ = s.control.Flush(); s.control.Close() }}); err == nil {
		t.Error("half of a file is stored")
	}
	_ = s.Close()
	s = open(t, o)
	files, err = s.Objects(t.Context())
	must(t, err)
	_, err = files.Put(t.Context(), "v/1", bytes.NewReader(make([]byte, 1<<20)))
	must(t, err)
	must(t, files.sweep(t.Context(), files.bucket, 0))
	if names, err := files.List(t.Context(), ""); err != nil || len(names) != 1 {
		t.Errorf("files %v: %v", names, err)
	}
	must(t, files.Delete(t.Context(), "v/1"))
	stream, err := s.js.Stream(t.Context(), "OBJ_"+s.names.objects)
	must(t, err)
	if info := stream.CachedInfo(); info.State.Bytes > 1<<20 {
		t.Errorf("%d bytes are left of no file", info.State.Bytes)
	}
}

// TestStoppedPush: of a file that is given up nothing stays.
func TestStoppedPush(t *testing.T) {
	o := Options{URL: startServer(t, nil), Run: "stopped"}
	s := open(t, o)
	files, err := s.Objects(t.Context())
	must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	if _, err = files.Put(ctx, "v/1", &half{left: 8 << 20, end: cancel}); err == nil {
		t.Error("half of a file is stored")
	}
	stream, err := s.js.Stream(t.Context(), "OBJ_"+s.names.objects)
	must(t, err)
	if info := stream.CachedInfo(); info.State.Bytes > 1<<20 {
		t.Errorf("%d bytes are left of no file", info.State.Bytes)
	}
}
