package transfer

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
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
	// Keep is how many versions stay; 0 means 2: what is served and what comes next.
	Keep int
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

// Has reports whether a version is there, whole.
func (s *Store) Has(version loop.Version) bool {
	_, err := os.Stat(filepath.Join(s.Path(version), manifestName))
	return err == nil
}

// Clean removes what earlier processes left half done.
func (s *Store) Clean() error {
	names, err := filepath.Glob(filepath.Join(s.Dir, ".arriving-*"))
	for _, name := range names {
		err = errors.Join(err, os.RemoveAll(name))
	}
	return err
}

// Fetch brings a version here, whole or not at all, from the first of parents that has
// it; when one fails in the middle the next goes on where it ended. Parents are URLs of
// Sources, the prefix included. A version that is here already takes no time.
func (s *Store) Fetch(ctx context.Context, version loop.Version, parents []string) (Phases, error) {
	var p Phases
	if s.Has(version) {
		return p, nil
	}
	if len(parents) == 0 {
		return p, fmt.Errorf("transfer: version %d: nobody to fetch it from", version)
	}
	began := time.Now()
	var c *Copy
	var problems []error
	for _, parent := range parents {
		p.Parents++
		var err error
		if c == nil {
			c, err = s.begin(ctx, version, parent)
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

// begin asks a parent what the version is made of and makes room for it.
func (s *Store) begin(ctx context.Context, version loop.Version, parent string) (*Copy, error) {
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
	for _, part := range offer.Parts {
		if part.Size < 0 || part.Name == manifestName {
			return nil, fmt.Errorf("it offers a file %q of %d bytes: want files of the version", part.Name, part.Size)
		}
	}
	dir := filepath.Join(s.Dir, fmt.Sprintf(".arriving-%d-%d", version, time.Now().UnixNano()))
	c, err := createCopy(version, []byte(offer.ManifestText), offer.Parts, dir)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	c.Form = s.Form
	if s.Source != nil {
		s.Source.Add(c)
	}
	return c, nil
}

// offerBytesMax bounds an offer: a manifest names every tensor.
const offerBytesMax = 256 << 20

// stream takes the chunks that are missing from one parent.
func (s *Store) stream(ctx context.Context, c *Copy, parent string, began time.Time, p *Phases) error {
	response, err := s.get(ctx, fmt.Sprintf("%s/%d/chunks?from=%d&form=%s", parent, c.Version, c.Here(), url.QueryEscape(s.Form)))
	if err != nil {
		return err
	}
	defer response.Body.Close()
	body := bufio.NewReaderSize(response.Body, 64<<10)
	buffer := make([]byte, ChunkBytes)
	for i := c.Here(); i < c.Chunks(); i++ {
		data := buffer[:c.chunkBytes(i)]
		if err := s.Limit.Take(ctx, len(data)); err != nil {
			return err
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
	client := s.Client
	if client == nil {
		client = http.DefaultClient
	}
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
	if s.Always {
		if err := c.sync(); err != nil {
			return err
		}
	}
	manifest := filepath.Join(c.dir, manifestName)
	if err := os.WriteFile(manifest, c.Manifest, 0o644); err != nil {
		return fmt.Errorf("transfer: version %d: %w", c.Version, err)
	}
	err := c.rename(s.Path(c.Version))
	if errors.Is(err, fs.ErrExist) && s.Has(c.Version) {
		return os.RemoveAll(c.dir) // another fetch was faster
	}
	if err != nil {
		return err
	}
	return s.prune()
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

// prune removes the oldest versions beyond those that are kept.
func (s *Store) prune() error {
	keep := s.Keep
	if keep == 0 {
		keep = 2
	}
	names, err := filepath.Glob(filepath.Join(s.Dir, "v[0-9]*"))
	var versions []loop.Version
	for _, name := range names {
		if version, parseErr := strconv.ParseInt(filepath.Base(name)[1:], 10, 64); parseErr == nil {
			versions = append(versions, loop.Version(version))
		}
	}
	slices.Sort(versions)
	for i := 0; err == nil && i < len(versions)-keep; i++ {
		err = s.Discard(versions[i])
	}
	return err
}
