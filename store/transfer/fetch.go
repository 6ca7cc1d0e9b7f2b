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
	"sync/atomic"
	"time"

	"github.com/headway-rl/headway/loop"
)

// Store is one receiver's directory of versions: whole ones, each in a directory that
// was renamed into place, and those that are arriving, beside them.
type Store struct {
	// Dir of the versions.
	Dir string
	// Source offers what arrives to others; nil to pass on nothing.
	Source *Source
	// Client of the requests; nil means http.DefaultClient.
	Client *http.Client
	// Token is sent as the bearer; "" for none.
	Token string
	// Limit bounds what is received; nil for no bound.
	Limit *Bucket
	// Form that versions are fetched in; "" as they were published.
	Form string
	// Always syncs a version before it is in place.
	Always bool
	// Verify compares every file with the hash in its manifest as well, and not only every chunk with the checksum that
	// came with it. It is for parents that are not trusted. It reads all of it again.
	Verify bool
	// Keep is how many versions stay beside the one that is served; 0 means 2.
	Keep int
	// Idle is how long a parent may send nothing before the next is asked; 0 means 30 s.
	// It bounds how slow a link may be: a chunk has to pass in that time.
	Idle time.Duration

	served atomic.Int64 // the version that Served named, plus 1
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

// Fetch brings a version here, whole or not at all, from the first of parents that has it. When one fails or falls
// silent in the middle the next goes on where it ended. Parents are URLs of Sources, the prefix included. A version
// that is here already under that number is kept if its manifest is the same. It may be another run's, or in another
// form.
func (s *Store) Fetch(ctx context.Context, version loop.Version, parents []string) (Phases, error) {
	var p Phases
	if len(parents) == 0 {
		return p, fmt.Errorf("transfer: version %d: no source to fetch it from", version)
	}
	began := time.Now()
	var c *Copy
	var problems []error
	for _, parent := range parents {
		p.Parents++
		var err error
		if c == nil {
			var here bool
			if c, here, err = s.begin(ctx, version, parent); here {
				return p, nil
			}
		} else {
			err = s.same(ctx, c, parent)
		}
		if err == nil {
			err = s.stream(ctx, c, parent, began, &p)
		}
		if err == nil {
			break
		}
		problems = append(problems, fmt.Errorf("from %s: %w", parent, err))
		if ctx.Err() != nil {
			break
		}
	}
	if c == nil || c.Here() < c.Chunks() {
		err := fmt.Errorf("transfer: version %d did not arrive: %w", version, errors.Join(problems...))
		if c != nil {
			s.abandon(c, err)
		}
		return p, err
	}
	p.Bytes, p.TransferS = c.Size(), time.Since(began).Seconds()
	if err := s.commit(c); err != nil {
		s.abandon(c, err)
		return p, err
	}
	p.CommitS = time.Since(began).Seconds() - p.TransferS
	return p, nil
}

// begin asks a parent what the version is made of and makes room for it, unless it is here.
func (s *Store) begin(ctx context.Context, version loop.Version, parent string) (c *Copy, here bool, err error) {
	offer, err := s.ask(ctx, version, parent)
	if err != nil {
		return nil, false, err
	}
	if there, err := os.ReadFile(filepath.Join(s.Path(version), manifestName)); err == nil {
		if string(there) == offer.ManifestText {
			return nil, true, nil
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

// same refuses to go on with a parent whose version is not the one that has begun to arrive.
func (s *Store) same(ctx context.Context, c *Copy, parent string) error {
	offer, err := s.ask(ctx, c.Version, parent)
	if err == nil && offer.ManifestText != string(c.Manifest) {
		err = errors.New("it has another version under that number")
	}
	return err
}

// ask asks a parent for its offer of a version.
func (s *Store) ask(ctx context.Context, version loop.Version, parent string) (*Offer, error) {
	ctx, cancel := context.WithTimeout(ctx, Patience+s.idle())
	defer cancel()
	response, err := s.get(ctx, fmt.Sprintf("%s/%d?form=%s", parent, version, url.QueryEscape(s.Form)))
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
	return &offer, nil
}

// versionBytesMax is more than any version is: 64 TiB.
const versionBytesMax = 64 << 40

// offerBytesMax bounds an offer: a manifest names every tensor.
const offerBytesMax = 256 << 20

// stream takes the chunks that are missing from one parent.
func (s *Store) stream(ctx context.Context, c *Copy, parent string, began time.Time, p *Phases) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	silence := time.AfterFunc(s.idle(), func() { cancel(fmt.Errorf("%w for %s", errSilent, s.idle())) })
	defer silence.Stop()
	err := s.receive(ctx, c, parent, began, p, func() { silence.Reset(s.idle()) })
	if cause := context.Cause(ctx); errors.Is(cause, errSilent) {
		return cause
	}
	return err
}

// errSilent ends a stream whose parent sends nothing.
var errSilent = errors.New("it sent nothing")

func (s *Store) idle() time.Duration { return cmp.Or(s.Idle, 30*time.Second) }

// heard calls word whenever something was read.
type heard struct {
	io.Reader
	word func()
}

func (h heard) Read(p []byte) (int, error) {
	n, err := h.Reader.Read(p)
	if n > 0 {
		h.word()
	}
	return n, err
}

// receive takes the chunks; word is called whenever the parent has sent something.
func (s *Store) receive(ctx context.Context, c *Copy, parent string, began time.Time, p *Phases, word func()) error {
	response, err := s.get(ctx, fmt.Sprintf("%s/%d/chunks?from=%d&form=%s", parent, c.Version, c.Here(), url.QueryEscape(s.Form)))
	if err != nil {
		return err
	}
	defer response.Body.Close()
	body := bufio.NewReaderSize(heard{response.Body, word}, 64<<10)
	buffer := make([]byte, ChunkBytes)
	for i := c.Here(); i < c.Chunks(); i++ {
		data := buffer[:c.chunkBytes(i)]
		if err := s.Limit.pieces(ctx, len(data), func(int) error { word(); return nil }); err != nil {
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

// get makes one request and refuses everything but its success.
func (s *Store) get(ctx context.Context, address string) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, err
	}
	if s.Token != "" {
		request.Header.Set("Authorization", "Bearer "+s.Token)
	}
	client := cmp.Or(s.Client, http.DefaultClient)
	response, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	if response.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(response.Body, 300))
		response.Body.Close()
		return nil, fmt.Errorf("%s: %s", response.Status, text)
	}
	return response, nil
}

// commit puts a version that has arrived in its place, its manifest last.
func (s *Store) commit(c *Copy) error {
	if s.Verify {
		if err := c.verify(); err != nil {
			return err
		}
	}
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
	return errors.Join(s.syncDir(s.Dir), s.prune(c.Version))
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
