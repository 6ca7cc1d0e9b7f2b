package transfer

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headway-rl/headway/api/protocol"
	"github.com/headway-rl/headway/internal/printable"
	"github.com/headway-rl/headway/loop"
)

// Store is one receiver's directory of versions: whole ones, each in a directory that
// was renamed into place, and those that are arriving, beside them.
type Store struct {
	// Dir of the versions.
	Dir string
	// Source offers what arrives to others; nil to pass on nothing.
	Source *Source
	// Client of the requests; nil means one of NewClient without certificates of its own.
	Client *http.Client
	// Token returns what is sent as the bearer to the control plane, never to another parent; nil for nothing.
	Token func() string
	// Limit bounds what is received; nil for no bound.
	Limit *Bucket
	// Form that versions are fetched in; "" as they were published.
	Form string
	// Always syncs a version before it is in place.
	Always bool
	// Keep is how many versions stay beside the one that is served; 0 means 2.
	Keep int
	// Idle is how long a parent may send next to nothing, less than 16 KiB/s, before the next is asked; 0 means 30 s.
	Idle time.Duration

	served atomic.Int64 // the version that Served named, plus 1
	// proven are the versions in place of which this process has compared every file with its hash.
	proven sync.Map
}

// Phases are the times that a fetch took.
type Phases struct {
	// First is until the first chunk was there, Transfer until the last was; Commit until the version was in place.
	FirstS    float64 `json:"first_s"`
	TransferS float64 `json:"transfer_s"`
	CommitS   float64 `json:"commit_s"`
	// Bytes received, Parents how many had to be asked.
	Bytes   int64 `json:"bytes"`
	Parents int   `json:"parents"`
	// Forged says which bytes had to be fetched again from the control plane, since others had sent something
	// else; nil for none.
	Forged error `json:"-"`
	// Kept says why versions that are not needed could not be removed; nil for none.
	Kept error `json:"-"`
}

// Load is what a receiver is told to fetch.
type Load struct {
	// Version is its number.
	Version loop.Version
	// Offer is the Digest of what the control plane offers of it. Nothing else is installed.
	Offer string
	// Parents are where it may be fetched from, the best first; the last is the control plane.
	Parents []Parent
}

// Parent is where a version can be fetched from.
type Parent struct {
	// URL of a Source, the prefix included.
	URL string
	// Control marks the control plane, the only one that is sent the Store's Token.
	Control bool
	// Key is sent to all others.
	Key string
	// Dial is the host and port to connect to; empty for those of URL.
	Dial string
}

// manifestName is the file that makes a directory a version.
const manifestName = "manifest.json"

// Path is the directory of a version.
func (s *Store) Path(version loop.Version) string {
	return filepath.Join(s.Dir, fmt.Sprintf("v%06d", version))
}

// Clean removes what earlier processes left half done.
func (s *Store) Clean() error {
	var err error
	for _, pattern := range []string{".arriving-*", ".gone-*"} {
		names, globErr := filepath.Glob(filepath.Join(s.Dir, pattern))
		err = errors.Join(err, globErr)
		for _, name := range names {
			err = errors.Join(err, os.RemoveAll(name))
		}
	}
	return err
}

// Fetch brings a version here, whole or not at all, from the first of its parents that has it. When one fails or falls
// silent in the middle the next goes on where it ended. Every parent's offer must be the control plane's, and every
// file that arrives must have its hash. Where one has not, all of it is fetched again, from the control plane alone. A
// version that is here already under that number is kept if its manifest is the same. It may be another run's, or in
// another form.
func (s *Store) Fetch(ctx context.Context, load Load) (Phases, error) {
	p, err := s.fetch(ctx, load)
	if !errors.Is(err, errForged) || len(load.Parents) < 2 {
		return p, err
	}
	load.Parents = load.Parents[len(load.Parents)-1:]
	again, errAgain := s.fetch(ctx, load)
	again.Forged = err
	again.Parents += p.Parents
	return again, errAgain
}

func (s *Store) fetch(ctx context.Context, load Load) (p Phases, err error) {
	if len(load.Parents) == 0 || load.Offer == "" {
		return p, fmt.Errorf("transfer: version %d: the control plane named %d sources and the hash %q: want both", load.Version, len(load.Parents), load.Offer)
	}
	began := time.Now()
	var c *Copy
	var verified chan error
	var problems []error
	for _, parent := range load.Parents {
		p.Parents++
		offer, err := s.ask(ctx, load, parent)
		if err == nil && c == nil {
			var here bool
			if c, here, err = s.begin(ctx, offer); here {
				return p, nil
			}
			if err == nil {
				verified = make(chan error, 1)
				go func() { verified <- c.verify(ctx) }()
			}
		}
		if err == nil {
			err = s.stream(ctx, c, parent, began, &p)
		}
		if err == nil {
			break
		}
		problems = append(problems, fmt.Errorf("from %s: %w", parent.URL, err))
		if ctx.Err() != nil {
			break
		}
	}
	if c == nil {
		return p, fmt.Errorf("transfer: version %d did not arrive: %w", load.Version, errors.Join(problems...))
	}
	if c.Here() < c.Chunks() {
		err := fmt.Errorf("transfer: version %d did not arrive: %w", load.Version, errors.Join(problems...))
		s.abandon(c, err)
		<-verified
		return p, err
	}
	p.Bytes, p.TransferS = c.Size(), time.Since(began).Seconds()
	if err = <-verified; err == nil {
		err = s.commit(c)
	}
	if err != nil {
		s.abandon(c, err)
		return p, err
	}
	p.CommitS = time.Since(began).Seconds() - p.TransferS
	p.Kept = s.prune(load.Version)
	return p, nil
}

// begin makes room for an offered version, unless it is here.
func (s *Store) begin(ctx context.Context, offer *Offer) (c *Copy, here bool, err error) {
	version := offer.Version
	if there, err := os.ReadFile(filepath.Join(s.Path(version), manifestName)); err == nil {
		if string(there) == offer.ManifestText && s.whole(ctx, offer) {
			return nil, true, nil
		}
		if ctx.Err() != nil {
			return nil, false, context.Cause(ctx)
		}
		if err := s.Discard(version); err != nil {
			return nil, false, err
		}
	}
	dir := filepath.Join(s.Dir, fmt.Sprintf(".arriving-%d-%d", version, time.Now().UnixNano()))
	c, err = createCopy(version, []byte(offer.ManifestText), offer.Parts, dir)
	if err != nil {
		return nil, false, errors.Join(err, os.RemoveAll(dir))
	}
	c.Form = s.Form
	if s.Source != nil {
		s.Source.Add(c)
	}
	return c, false, nil
}

// whole reports whether the files of a version that an earlier process put in its place are those of an offer: a loss
// of power, or the disk, may have changed them since.
func (s *Store) whole(ctx context.Context, offer *Offer) bool {
	if _, proven := s.proven.Load(offer.Version); proven {
		return true
	}
	c, err := OpenCopy(offer.Version, s.Form, []byte(offer.ManifestText), offer.Parts, s.Path(offer.Version))
	if err != nil {
		return false
	}
	defer c.Close()
	if c.verify(ctx) != nil {
		return false
	}
	s.proven.Store(offer.Version, true)
	return true
}

// ask asks a parent for its offer of a version, and refuses another than the control plane's.
func (s *Store) ask(ctx context.Context, load Load, parent Parent) (*Offer, error) {
	version := load.Version
	ctx, cancel := context.WithTimeout(ctx, Patience+s.idle())
	defer cancel()
	response, err := s.get(ctx, parent, fmt.Sprintf("/%d?form=%s", version, url.QueryEscape(s.Form)))
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	var offer Offer
	if err := json.NewDecoder(io.LimitReader(response.Body, offerBytesMax)).Decode(&offer); err != nil {
		return nil, fmt.Errorf("what it offers is no version: %w", err)
	}
	if offer.Version != version || len(offer.Parts) == 0 {
		return nil, fmt.Errorf("it offers version %d with %d files, want version %d", offer.Version, len(offer.Parts), version)
	}
	total := int64(0)
	for _, part := range offer.Parts {
		if part.Size < 0 || part.Size > versionBytesMax || part.Name == manifestName {
			return nil, fmt.Errorf("it offers a file %q of %d bytes: want files of the version", part.Name, part.Size)
		}
		if total += part.Size; total > versionBytesMax {
			return nil, fmt.Errorf("it offers a version of more than %d bytes", int64(versionBytesMax))
		}
	}
	if found := offer.Digest(); found != load.Offer {
		return nil, fmt.Errorf("it offers another version under that number: its hash is %s, the control plane's %s", found, load.Offer)
	}
	return &offer, nil
}

// versionBytesMax is more than any version is: 64 TiB.
const versionBytesMax = 64 << 40

// offerBytesMax bounds an offer: a manifest names every tensor.
const offerBytesMax = 256 << 20

// stream takes the chunks that are missing from one parent.
func (s *Store) stream(ctx context.Context, c *Copy, parent Parent, began time.Time, p *Phases) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	silence := time.AfterFunc(s.idle(), func() { cancel(fmt.Errorf("%w for %s", errSilent, s.idle())) })
	defer silence.Stop()
	enough, came := int64(bytesPerSMin*s.idle().Seconds()), int64(0)
	err := s.receive(ctx, c, parent, began, p, func(n int) {
		if came += int64(n); n == 0 || came >= enough {
			came = 0
			silence.Reset(s.idle())
		}
	})
	if cause := context.Cause(ctx); errors.Is(cause, errSilent) {
		return cause
	}
	return err
}

// bytesPerSMin is the slowest that a parent may be. One that sends a byte now and then would hold its
// receivers up for as long as it likes.
const bytesPerSMin = 16 << 10

// errSilent ends a stream whose parent sends nothing, or next to nothing.
var errSilent = errors.New("it sent nothing, or next to nothing,")

func (s *Store) idle() time.Duration { return cmp.Or(s.Idle, 30*time.Second) }

// heard tells word how much was read.
type heard struct {
	io.Reader
	word func(n int)
}

func (h heard) Read(p []byte) (int, error) {
	n, err := h.Reader.Read(p)
	if n > 0 {
		h.word(n)
	}
	return n, err
}

// receive takes the chunks; word is told how much the parent has sent, and 0 while this end waits for its own limit.
func (s *Store) receive(ctx context.Context, c *Copy, parent Parent, began time.Time, p *Phases, word func(n int)) error {
	response, err := s.get(ctx, parent, fmt.Sprintf("/%d/chunks?from=%d&form=%s", c.Version, c.Here(), url.QueryEscape(s.Form)))
	if err != nil {
		return err
	}
	defer response.Body.Close()
	body := bufio.NewReaderSize(heard{response.Body, word}, 64<<10)
	buffer := make([]byte, ChunkBytes)
	for i := c.Here(); i < c.Chunks(); i++ {
		data := buffer[:c.chunkBytes(i)]
		if err := s.Limit.pieces(ctx, len(data), func(int) error { word(0); return nil }); err != nil {
			return err // while this end waits for its own limit the parent is not silent
		}
		sum, err := readChunk(body, uint32(i), data)
		if err != nil {
			return err
		}
		if err := c.put(i, data, sum); err != nil {
			return err
		}
		if i == 0 {
			p.FirstS = time.Since(began).Seconds()
		}
	}
	return nil
}

// get makes one request of a parent and refuses everything but its success.
func (s *Store) get(ctx context.Context, parent Parent, path string) (*http.Response, error) {
	request, err := http.NewRequestWithContext(dialing(ctx, parent.Dial), http.MethodGet, parent.URL+path, nil)
	if err != nil {
		return nil, err
	}
	if parent.Control {
		authorize(request, s.Token)
	} else {
		authorize(request, func() string { return parent.Key })
	}
	response, err := staying(s.Client).Do(request)
	if err != nil {
		return nil, err
	}
	if response.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(response.Body, 4096))
		response.Body.Close()
		var refused protocol.ErrorBody
		if json.Unmarshal(text, &refused) == nil && refused.Error.Message != "" {
			text = []byte(refused.Error.Message)
		}
		// It is logged, and a parent is an engine like any other.
		return nil, fmt.Errorf("HTTP %d: %s", response.StatusCode, printable.Text(string(text), 300))
	}
	return response, nil
}

// commit puts a version that has arrived in its place, its manifest last.
func (s *Store) commit(c *Copy) error {
	if s.Always {
		if err := c.sync(); err != nil {
			return err
		}
	}
	if err := s.write(filepath.Join(c.dir, manifestName), c.Manifest); err != nil {
		return fmt.Errorf("transfer: version %d: %w", c.Version, err)
	}
	if err := s.syncDir(c.dir); err != nil {
		return err
	}
	if err := c.rename(s.Path(c.Version)); err != nil {
		return err
	}
	s.proven.Store(c.Version, true)
	return s.syncDir(s.Dir)
}

// write writes a small file, which survives a loss of power where that is asked for.
func (s *Store) write(path string, content []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	if err == nil && s.Always {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

func (s *Store) syncDir(dir string) error {
	if !s.Always {
		return nil
	}
	d, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("transfer: %w", err)
	}
	return errors.Join(d.Sync(), d.Close())
}

// abandon removes what has arrived of a version.
func (s *Store) abandon(c *Copy, why error) {
	c.fail(why)
	if s.Source != nil && s.Source.Find(c.Version, c.Form) == c {
		s.Source.Remove(c.Version)
	}
	c.Close()
	_ = os.RemoveAll(c.dir) // or the next Clean does it
}

// Served implements Delivery: the version stays until another is served.
func (s *Store) Served(version loop.Version) { s.served.Store(int64(version) + 1) }

// prune removes what is beyond Keep: first what is newer than the version that has just
// come, which is of another run, then the oldest; never that version nor the served one.
func (s *Store) prune(arrived loop.Version) error {
	keep := max(cmp.Or(s.Keep, 2), 1)
	names, err := filepath.Glob(filepath.Join(s.Dir, "v[0-9]*"))
	var older []loop.Version
	for _, name := range names {
		version, parseErr := strconv.ParseInt(filepath.Base(name)[1:], 10, 64)
		switch v := loop.Version(version); {
		case parseErr != nil || v == arrived || int64(v)+1 == s.served.Load():
		case v > arrived:
			err = errors.Join(err, s.Discard(v))
		default:
			older = append(older, v)
		}
	}
	slices.Sort(older)
	for _, v := range older[:max(len(older)-keep+1, 0)] {
		err = errors.Join(err, s.Discard(v))
	}
	return err
}
