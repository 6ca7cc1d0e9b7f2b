package file

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/headway-rl/headway/internal/replace"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/port"
	"github.com/headway-rl/headway/store/payload"
)

const segmentPrefix = "payload-"

// place is where a payload lies.
type place struct {
	segment *segment
	offset  int64
	size    int64
	sample  int32
	attempt int32
}

// segment is one payload file. Only the last is written to.
type segment struct {
	path   string
	number int64
	file   *os.File
	size   int64
	// live counts payloads in it that are still wanted.
	live int
}

// payloads is the store's index of all segments.
type payloads struct {
	mutex    sync.Mutex
	dir      string
	options  Options
	segments []*segment // ascending; the last is written to
	next     int64      // number of the next segment
	groups   map[loop.GroupID][]place
	bytes    int64
	buf      []byte
	err      error
	blobs    blobs
	sync     func(*os.File) error // has the disk keep a segment
}

// openPayloads verifies all segments, cuts torn ends and builds the index.
func openPayloads(dir string, o Options) (*payloads, error) {
	p := &payloads{dir: dir, options: o, next: 1, groups: map[loop.GroupID][]place{}, sync: (*os.File).Sync}
	names, err := os.ReadDir(dir)
	if err != nil {
		return p, fmt.Errorf("store: %w", err)
	}
	for _, entry := range names {
		digits, ok := strings.CutPrefix(entry.Name(), segmentPrefix)
		number, err := strconv.ParseInt(digits, 10, 64)
		if !ok || err != nil {
			continue
		}
		s := &segment{path: filepath.Join(dir, entry.Name()), number: number}
		p.segments = append(p.segments, s)
	}
	slices.SortFunc(p.segments, func(a, b *segment) int { return cmp.Compare(a.number, b.number) })
	for i, s := range p.segments {
		if err := p.load(s, i == len(p.segments)-1); err != nil {
			return p, fmt.Errorf("store: %s: %w", s.path, err)
		}
		p.next = s.number + 1
	}
	p.deleteForgotten()
	return p, p.openBlobs()
}

// load indexes a segment; only the last may have a torn end.
func (p *payloads) load(s *segment, last bool) error {
	data, err := os.ReadFile(s.path)
	if err != nil {
		return err
	}
	s.size, err = scanFrames(data, func(offset int64, body []byte) error {
		id, err := payload.DecodeID(body)
		if err == nil {
			p.index(s, id, offset, int64(frameHeader+len(body)))
		}
		return err
	})
	switch {
	case err != nil:
		return err
	case s.size < int64(len(data)) && !last:
		return fmt.Errorf("byte %d: %w", s.size, errDamaged)
	}
	if s.file, err = os.OpenFile(s.path, os.O_RDWR, 0); err != nil {
		return err
	}
	if s.size < int64(len(data)) {
		if err := s.file.Truncate(s.size); err != nil {
			return err
		}
	}
	p.bytes += s.size
	return nil
}

// index notes where a payload lies. Of several for one sample the last attempt
// counts, of one attempt the last written.
func (p *payloads) index(s *segment, id port.RolloutID, offset, size int64) {
	places := p.groups[id.Group]
	added := place{segment: s, offset: offset, size: size, sample: id.Sample, attempt: id.Attempt}
	for i := range places {
		if places[i].sample != id.Sample {
			continue
		}
		if places[i].attempt <= id.Attempt {
			places[i].segment.live--
			places[i] = added
			s.live++
		}
		return
	}
	p.groups[id.Group] = append(places, added)
	s.live++
}

// PutSample makes a rollout's payload durable. Without room for it nothing of it is
// kept, the error wraps port.ErrNoSpace, and it may be tried again. Any other error of
// a write is final for payloads.
func (s *Store) PutSample(sample port.Sample) error {
	p := s.payloads
	p.mutex.Lock()
	defer p.mutex.Unlock()
	if p.err != nil {
		return p.err
	}
	if len(sample.LossMask) != len(sample.Tokens) || len(sample.Logprobs) != len(sample.Tokens) || len(sample.Versions) != len(sample.Tokens) {
		return fmt.Errorf("store: g%d/%d: %d tokens with %d mask, %d log-prob and %d version entries, want as many of each",
			sample.ID.Group, sample.ID.Sample, len(sample.Tokens), len(sample.LossMask), len(sample.Logprobs), len(sample.Versions))
	}
	body := payload.Append(p.buf[:0], &sample)
	p.buf = body
	if len(body) > frameBytesMax {
		return fmt.Errorf("store: the payload of g%d/%d takes %d bytes, want at most %d", sample.ID.Group, sample.ID.Sample, len(body), frameBytesMax)
	}
	frame := appendFrame(make([]byte, 0, frameHeader+len(body)), body)
	if used := p.bytes + p.blobs.bytes; used+int64(len(frame)) > p.options.PayloadBytesMax && !p.emptyLast() {
		return fmt.Errorf("store: %w: payloads take %d bytes of at most %d in %s: raise the limit or shrink the queue",
			port.ErrNoSpace, used, p.options.PayloadBytesMax, p.dir)
	}
	seg, err := p.writable()
	if err == nil {
		err = p.write(seg, frame)
	}
	if errors.Is(err, port.ErrNoSpace) {
		p.emptyLast() // for the next try
		return err
	}
	if err != nil {
		p.err = fmt.Errorf("store: payloads take no more: %w", err)
		return p.err
	}
	p.index(seg, sample.ID, seg.size-int64(len(frame)), int64(len(frame)))
	p.dropBlobs(sample.ID.Group, func(b *blob) bool { return b.id.Sample == sample.ID.Sample && b.id.Attempt < sample.ID.Attempt })
	return nil
}

// emptyLast takes what nobody wants out of the segment that is written to, if that is
// all that it has. It reports whether there is more room now.
func (p *payloads) emptyLast() bool {
	if len(p.segments) == 0 {
		return false
	}
	s := p.segments[len(p.segments)-1]
	if s.live > 0 || s.size == 0 || s.file.Truncate(0) != nil {
		return false
	}
	p.bytes -= s.size
	s.size = 0
	return true
}

func (p *payloads) write(s *segment, frame []byte) error {
	_, err := s.file.WriteAt(frame, s.size)
	if err == nil && p.options.Always {
		err = p.sync(s.file) // a disk behind a network says only here that it is full
	}
	if err != nil {
		// Open would cut what is torn; without it the next try writes over it.
		if cut := s.file.Truncate(s.size); noSpace(err) && cut == nil {
			return full("the payloads", err)
		}
		return err
	}
	s.size += int64(len(frame))
	p.bytes += int64(len(frame))
	return nil
}

// writable returns the segment to write to, a new one if the last is full.
func (p *payloads) writable() (*segment, error) {
	if n := len(p.segments); n > 0 && p.segments[n-1].size < p.options.SegmentBytes {
		return p.segments[n-1], nil
	}
	s := &segment{number: p.next, path: filepath.Join(p.dir, fmt.Sprintf("%s%08d", segmentPrefix, p.next))}
	var err error
	if s.file, err = os.OpenFile(s.path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600); err != nil {
		if noSpace(err) {
			err = full("the payloads", err)
		}
		return nil, err
	}
	if p.options.Always {
		if err := replace.Directory(p.dir); err != nil {
			if gone := os.Remove(s.path); noSpace(err) && gone == nil {
				err = full("the payloads", err)
			}
			return nil, errors.Join(err, s.file.Close())
		}
	}
	p.next++
	p.segments = append(p.segments, s)
	p.deleteForgotten() // the one before may have been waiting for this
	return s, nil
}

// Samples returns the payloads of a group, in the order of their sample numbers:
// of each sample the last attempt that was put.
func (s *Store) Samples(group loop.GroupID) ([]port.Sample, error) {
	p := s.payloads
	p.mutex.Lock()
	defer p.mutex.Unlock()
	places := slices.Clone(p.groups[group])
	if len(places) == 0 {
		return nil, fmt.Errorf("store: group %d has no payloads in %s", group, p.dir)
	}
	slices.SortFunc(places, func(a, b place) int { return cmp.Compare(a.sample, b.sample) })
	samples := make([]port.Sample, len(places))
	for i, at := range places {
		body, err := readFrame(at.segment.file, at.offset, at.size)
		if err == nil {
			samples[i], err = payload.Decode(body)
		}
		if err != nil {
			return nil, fmt.Errorf("store: %s: payload of g%d/%d: %w", at.segment.path, group, at.sample, err)
		}
	}
	return samples, nil
}

// Discard drops the blobs of one attempt, and its payload if that is the one kept of its sample.
// It says nothing that a restart remembers: see Retain.
func (s *Store) Discard(id port.RolloutID) error {
	p := s.payloads
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.discard(func(other port.RolloutID) bool { return other == id }, id.Group)
	p.dropBlobs(id.Group, func(b *blob) bool { return b.id == id })
	p.deleteForgotten()
	return nil
}

// Retain forgets, after a restart, every payload of an attempt that does not count. That is one whose
// score the process before did not live to log, or one that the log discards. It also forgets those
// of groups whose end the process did not live to tell. It returns how many there were. Of blobs it keeps those of
// attempts whose payload it keeps.
func (s *Store) Retain(counts func(port.RolloutID) bool) (dropped int, err error) {
	p := s.payloads
	p.mutex.Lock()
	defer p.mutex.Unlock()
	for group := range p.groups {
		dropped += p.discard(func(id port.RolloutID) bool { return !counts(id) }, group)
	}
	p.retainBlobs()
	p.deleteForgotten()
	return dropped, nil
}

// discard takes a group's payloads that are unwanted out of the index.
func (p *payloads) discard(unwanted func(port.RolloutID) bool, group loop.GroupID) int {
	places := p.groups[group]
	kept := places[:0]
	for _, at := range places {
		if unwanted(port.RolloutID{Group: group, Sample: at.sample, Attempt: at.attempt}) {
			at.segment.live--
			continue
		}
		kept = append(kept, at)
	}
	if len(kept) > 0 {
		p.groups[group] = kept
	} else {
		delete(p.groups, group)
	}
	return len(places) - len(kept)
}

// Forget says that a group's payloads and blobs are no longer needed. Unknown groups are no error.
func (s *Store) Forget(group loop.GroupID) error {
	p := s.payloads
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.forget(group)
	p.deleteForgotten()
	return nil
}

func (p *payloads) forget(group loop.GroupID) {
	for _, at := range p.groups[group] {
		at.segment.live--
	}
	delete(p.groups, group)
	p.dropBlobs(group, func(*blob) bool { return true })
}

// deleteForgotten deletes every segment but the last in which nothing is wanted any more. The next Open finds one that stays.
func (p *payloads) deleteForgotten() {
	kept := p.segments[:0]
	for i, s := range p.segments {
		if s.live > 0 || i == len(p.segments)-1 {
			kept = append(kept, s)
			continue
		}
		p.bytes -= s.size
		p.remains(errors.Join(s.file.Close(), os.Remove(s.path)))
	}
	p.segments = kept
}

// PayloadBytes returns what all segments and blobs take on disk.
func (s *Store) PayloadBytes() int64 {
	s.payloads.mutex.Lock()
	defer s.payloads.mutex.Unlock()
	return s.payloads.bytes + s.payloads.blobs.bytes
}

func (p *payloads) close() error {
	if p == nil {
		return nil
	}
	p.mutex.Lock()
	p.err = ErrClosed
	p.mutex.Unlock()
	p.blobs.flying.Wait()
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.settled()
	var errs []error
	for _, s := range p.segments {
		if s.file != nil {
			errs = append(errs, s.file.Close())
		}
	}
	p.segments, p.groups, p.blobs.groups = nil, nil, nil
	return errors.Join(errs...)
}
