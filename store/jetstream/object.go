package jetstream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Objects are the run's files in the object store, such as the weights of published versions.
// A file is there whole or not at all, and its checksum is verified as it is read.
type Objects struct {
	store *Store
	close func() error
	// silence is how long a file may give no bytes before reading it is given up.
	silence time.Duration

	mutex  sync.Mutex
	bucket jetstream.ObjectStore // nil until it was found
	swept  time.Time             // when halves were last looked for
}

const (
	// objectSilence bounds the wait for the next bytes of a file that is read, and for the word that a part of one is stored.
	objectSilence = 30 * time.Second
	// lookEvery is how often a read without bytes looks whether its context has ended.
	lookEvery = time.Second
	// stopGrace is how long a file whose context has ended has to remove what is there of it.
	stopGrace = 5 * time.Second
	// halfAge is how old a half of a file is that nobody goes on with. halves are looked for as often.
	halfAge = time.Hour
)

// ErrNoObject is wrapped where a file is asked for that is not there.
var ErrNoObject = errors.New("no such file in the object store")

// Objects opens the run's object store, which is made if it is missing. It needs no lease:
// names of files that differ keep writers apart.
func (s *Store) Objects(ctx context.Context) (*Objects, error) {
	js, err := objectStreams(s.control)
	if err != nil {
		return nil, fmt.Errorf("store: %w", err)
	}
	bucket, err := js.CreateOrUpdateObjectStore(ctx, jetstream.ObjectStoreConfig{
		Bucket: s.names.objects, Description: "files of the run " + s.options.Run, Replicas: s.options.Replicas, Storage: jetstream.FileStorage,
	})
	if err != nil {
		return nil, fmt.Errorf("store: the object store of %s: %w", s.options.Run, err)
	}
	return &Objects{store: s, close: func() error { return nil }, silence: objectSilence, bucket: bucket}, nil
}

// objectStreams has the time of files for each answer: the word on a part of a file waits for all parts before it.
func objectStreams(conn *nats.Conn) (jetstream.JetStream, error) {
	return jetstream.New(conn, jetstream.WithDefaultTimeout(objectSilence))
}

// OpenObjects connects to the object store of a run, which o names by URL. The context bounds that. It makes and changes no
// stream. The run makes its object store with the first file, and until then each call is an error.
func OpenObjects(ctx context.Context, o Options) (*Objects, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	if o.URL == "" {
		return nil, errors.New("store: the files of a run of another process need the address of its NATS servers, and URL is empty")
	}
	s := newStore(o)
	var err error
	if s.control, err = s.connect(ctx, "objects"); err == nil {
		s.js, err = objectStreams(s.control)
	}
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return &Objects{store: s, close: s.Close, silence: objectSilence}, nil
}

// Close ends the connection of OpenObjects. Those of a Store stay.
func (o *Objects) Close() error { return o.close() }

// open returns the run's bucket, once the run has one.
func (o *Objects) open(ctx context.Context) (jetstream.ObjectStore, error) {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	if o.bucket != nil {
		return o.bucket, nil
	}
	bucket, err := o.store.js.ObjectStore(ctx, o.store.names.objects)
	switch run := o.store.options.Run; {
	case errors.Is(err, jetstream.ErrBucketNotFound):
		return nil, fmt.Errorf("store: NATS has no files of a run %q: see whether the run has this name, and serves with store.nats.objects: true: %w", run, err)
	case err != nil:
		return nil, fmt.Errorf("store: the object store of %s: %w", run, err)
	}
	o.bucket = bucket
	return bucket, nil
}

// Put stores a file under a name, in place of what it named before, and returns its size. Of one that is not stored whole
// nothing stays, or only until a later Put finds it.
func (o *Objects) Put(ctx context.Context, name string, src io.Reader) (int64, error) {
	bucket, err := o.open(ctx)
	if err != nil {
		return 0, err
	}
	if err := o.sweep(ctx, bucket, halfAge); err != nil {
		o.store.options.Logf("store: removing halves of files of %s: %v", o.store.options.Run, err)
	}
	put, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(stopGrace, cancel) })()
	info, err := bucket.Put(put, jetstream.ObjectMeta{Name: name, Opts: &jetstream.ObjectMetaOptions{ChunkSize: 512 << 10}}, stoppable{ctx, src})
	if err != nil {
		return 0, o.fail("storing", name, err)
	}
	return int64(info.Size), nil
}

// stoppable reads until a context ends.
type stoppable struct {
	ctx context.Context
	io.Reader
}

// Read implements io.Reader.
func (r stoppable) Read(p []byte) (int, error) {
	if err := context.Cause(r.ctx); err != nil {
		return 0, err
	}
	return r.Reader.Read(p)
}

// sweep removes what is there of files that were never stored whole, as their process was killed or NATS was away: no
// name has it, and its newest part has an age. It looks no more often than that.
func (o *Objects) sweep(ctx context.Context, bucket jetstream.ObjectStore, age time.Duration) error {
	o.mutex.Lock()
	due := time.Since(o.swept) >= age
	if due {
		o.swept = time.Now()
	}
	o.mutex.Unlock()
	if !due {
		return nil
	}
	stream, err := o.store.js.Stream(ctx, "OBJ_"+o.store.names.objects)
	if err != nil {
		return err
	}
	parts := "$O." + o.store.names.objects + ".C."
	info, err := stream.Info(ctx, jetstream.WithSubjectFilter(parts+">"))
	if err != nil {
		return err
	}
	files, err := bucket.List(ctx)
	if err != nil && !errors.Is(err, jetstream.ErrNoObjectsFound) {
		return err
	}
	for _, file := range files {
		delete(info.State.Subjects, parts+file.NUID)
	}
	for subject := range info.State.Subjects {
		newest, err := stream.GetLastMsgForSubject(ctx, subject)
		if err == nil && time.Since(newest.Time) >= age {
			err = stream.Purge(ctx, jetstream.WithPurgeSubject(subject))
		}
		if err != nil && !errors.Is(err, jetstream.ErrMsgNotFound) {
			return err
		}
	}
	return nil
}

// Open opens a file. Reading it ends with an error instead of io.EOF where it does not verify.
func (o *Objects) Open(ctx context.Context, name string) (io.ReadCloser, error) {
	bucket, err := o.open(ctx)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	late := time.AfterFunc(o.silence, cancel)
	r, err := bucket.Get(patient{ctx, min(o.silence, lookEvery)}, name)
	if !late.Stop() {
		err = errors.Join(errSilent, err)
	}
	if err != nil {
		cancel()
		if r != nil {
			r.Close()
		}
		return nil, o.fail("reading", name, err)
	}
	return &objectReader{r, cancel, o.silence}, nil
}

// errSilent says that a file was given up.
var errSilent = errors.New("NATS sends nothing of it")

// patient is a context whose deadline is always ahead, so that it bounds a single read. The client library gives a context
// without a deadline 5 s for the whole file. It does not end a read with its context either.
type patient struct {
	context.Context
	ahead time.Duration
}

// Deadline implements context.Context.
func (p patient) Deadline() (time.Time, bool) { return time.Now().Add(p.ahead), true }

// objectReader reads a file, and gives it up where it stands still.
type objectReader struct {
	jetstream.ObjectResult
	cancel  context.CancelFunc
	silence time.Duration
}

// Read implements io.Reader.
func (r *objectReader) Read(p []byte) (int, error) {
	for began := time.Now(); ; {
		n, err := r.ObjectResult.Read(p)
		if n > 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
			return n, err
		}
		if time.Since(began) >= r.silence {
			return 0, fmt.Errorf("store: %w for %v", errSilent, r.silence)
		}
	}
}

// Close ends the reading.
func (r *objectReader) Close() error {
	r.cancel()
	return r.ObjectResult.Close()
}

// List returns the names that begin with prefix, in order.
func (o *Objects) List(ctx context.Context, prefix string) ([]string, error) {
	bucket, err := o.open(ctx)
	if err != nil {
		return nil, err
	}
	infos, err := bucket.List(ctx)
	if err != nil && !errors.Is(err, jetstream.ErrNoObjectsFound) {
		return nil, fmt.Errorf("store: files of %s: %w", o.store.options.Run, err)
	}
	var names []string
	for _, info := range infos {
		if strings.HasPrefix(info.Name, prefix) {
			names = append(names, info.Name)
		}
	}
	slices.Sort(names)
	return names, nil
}

// Delete removes a file. One that is not there is no error.
func (o *Objects) Delete(ctx context.Context, name string) error {
	bucket, err := o.open(ctx)
	if err != nil {
		return err
	}
	if err := bucket.Delete(ctx, name); err != nil && !errors.Is(err, jetstream.ErrObjectNotFound) {
		return o.fail("deleting", name, err)
	}
	return nil
}

func (o *Objects) fail(what, name string, err error) error {
	if errors.Is(err, jetstream.ErrObjectNotFound) {
		return fmt.Errorf("store: %s %s of %s: %w", what, name, o.store.options.Run, ErrNoObject)
	}
	return fmt.Errorf("store: %s %s of %s: %w", what, name, o.store.options.Run, err)
}
