package checker

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// content is what is known of a version.
type content struct {
	// hashes of its files, each with the line that told it first; -1 stands for the disk.
	hashes map[string]hashSaid
	// sent says that a publish of it was acknowledged.
	sent  bool
	lease int64
	epoch uint64
	// leaseLine is the line that told its lease; -2 for none.
	leaseLine int
	// manifest is the manifest's own hash.
	manifest     string
	manifestLine int
}

type hashSaid struct {
	hash string
	line int
}

func hashOf(b []byte) string {
	sum := sha256.Sum256(b)
	return "sha256:" + hex.EncodeToString(sum[:])
}

func (c *check) version(v int64) *content {
	w := c.versions[v]
	if w == nil {
		w = &content{hashes: map[string]hashSaid{}, leaseLine: -2}
		c.versions[v] = w
	}
	return w
}

// says records a file of a version, and reports one that differs from what was told before.
func (c *check) says(rule string, line int, v int64, name, hash string) {
	w := c.version(v)
	was, ok := w.hashes[name]
	switch {
	case !ok:
		w.hashes[name] = hashSaid{hash, line}
	case was.hash != hash:
		c.fail(rule, line, "file %s of version %d is %s, and was %s at line %d", name, v, hash, was.hash, was.line)
	}
}

func (c *check) names(line int, v, lease int64) {
	w := c.version(v)
	switch {
	case w.leaseLine == -2:
		w.lease, w.leaseLine = lease, line
		if m := c.log.made(v); m != nil && m.lease != lease {
			c.fail(RuleVersion, line, "version %d names lease %d, and is of lease %d in the log", v, lease, m.lease)
		}
	case w.lease != lease:
		c.fail(RuleVersion, line, "version %d names lease %d, and named lease %d at line %d", v, lease, w.lease, w.leaseLine)
	}
}

// checkVersions compares all that was told of each version: by its trainer, by planes, by receivers and by the disk.
func (c *check) checkVersions() {
	tried := map[int64]map[string]bool{} // hashes of files that trainers sent
	for i := range c.said.publishes {
		p := &c.said.publishes[i]
		v := p.manifest.Version
		if tried[v] == nil {
			tried[v] = map[string]bool{}
		}
		acknowledged := p.whole && p.status == 200
		for name, text := range p.files {
			hash := hashOf(text)
			tried[v][name+" "+hash] = true
			if acknowledged && p.manifest.Kind != "delta" {
				c.says(RuleVersion, p.line, v, name, hash)
			}
		}
		if acknowledged {
			c.version(v).sent = true
			c.names(p.line, v, p.manifest.Lease)
		}
	}
	for i := range c.said.manifests {
		m := &c.said.manifests[i]
		c.manifest(m.line, m.word.Version, &m.word)
	}
	for i := range c.said.files {
		f := &c.said.files[i]
		switch {
		case f.version < 0:
		case f.status == 206:
			c.part(f)
		default:
			c.says(RuleVersion, f.line, f.version, f.name, hashOf(f.bytes))
		}
	}
	c.disk()
	c.held()
	c.refusedMade()
	epoch := uint64(0)
	for _, v := range slices.Sorted(maps.Keys(c.versions)) {
		w := c.versions[v]
		if w.epoch != 0 && w.epoch < epoch {
			c.fail(RuleWriter, w.manifestLine, "version %d was published under epoch %d, and one before it under epoch %d", v, w.epoch, epoch)
		}
		epoch = max(epoch, w.epoch)
		for _, name := range slices.Sorted(maps.Keys(w.hashes)) {
			h := w.hashes[name]
			if sent := tried[v]; len(sent) > 0 && hasFile(sent, name) && !sent[name+" "+h.hash] {
				c.fail(RuleVersion, h.line, "file %s of version %d is %s, and no trainer sent that", name, v, h.hash)
			}
		}
		if c.log.made(v) == nil && w.leaseLine != -2 && !c.lastOf(v) {
			c.fail(RuleVersion, w.leaseLine, "version %d is there, and the log has none", v)
		}
	}
}

// part compares a part of a file with the files that trainers sent for the version.
func (c *check) part(f *fileSaid) {
	sent := 0
	for i := range c.said.publishes {
		p := &c.said.publishes[i]
		text, has := p.files[f.name]
		if p.manifest.Version != f.version || !has {
			continue
		}
		if f.from <= len(text) && bytes.HasPrefix(text[f.from:], f.bytes) {
			return
		}
		sent++
	}
	if sent > 0 {
		c.fail(RuleVersion, f.line, "%s was sent %d bytes of %s of version %d from byte %d on, and no trainer sent those", f.host, len(f.bytes), f.name, f.version, f.from)
	}
}

func hasFile(sent map[string]bool, name string) bool {
	for s := range sent {
		if strings.HasPrefix(s, name+" ") {
			return true
		}
	}
	return false
}

// manifest compares a manifest with what is known of its version.
func (c *check) manifest(line int, v int64, m *manifestWord) {
	if m.Version != v {
		c.fail(RuleVersion, line, "the manifest of version %d says version %d", v, m.Version)
		return
	}
	c.names(line, v, m.Lease)
	w := c.version(v)
	w.epoch = m.Epoch
	if w.manifest == "" {
		w.manifest, w.manifestLine = m.Hash, line
	} else if w.manifest != m.Hash {
		c.fail(RuleVersion, line, "the manifest of version %d has the hash %s, and had %s at line %d", v, m.Hash, w.manifest, w.manifestLine)
	}
	var listed []string
	for _, f := range m.Files {
		listed = append(listed, f.Name)
		c.says(RuleVersion, line, v, f.Name, f.Hash)
	}
	for _, name := range slices.Sorted(maps.Keys(w.hashes)) {
		h := w.hashes[name]
		if !slices.Contains(listed, name) {
			c.fail(RuleVersion, line, "the manifest of version %d has the files %v, and line %d has %s", v, listed, h.line, name)
		}
	}
}

// held compares what receivers hold, and engines read.
func (c *check) held() {
	for i := range c.lines {
		l := &c.lines[i]
		if l.Kind != "note" {
			continue
		}
		words := strings.Fields(l.Text)
		if len(words) != 4 || words[0] != "holds" && words[0] != "reads" {
			continue
		}
		rule := RuleReceiver
		if words[0] == "reads" {
			rule = RuleVersion
		}
		v, err := strconv.ParseInt(words[1], 10, 64)
		if err != nil {
			continue
		}
		if words[3] == "absent" {
			c.fail(RuleReceiver, i, "%s holds version %d without its %s", l.Host, v, words[2])
		} else if _, known := c.version(v).hashes[words[2]]; known {
			c.says(rule, i, v, words[2], words[3])
		}
	}
}

// disk compares the versions that lie on the disk.
func (c *check) disk() {
	dir := filepath.Join(c.ending.Dir, "weights")
	entries, err := os.ReadDir(dir)
	if err != nil {
		c.fail(RuleVersion, -1, "%v", err)
		return
	}
	newest, there := int64(-1), map[int64]bool{}
	for _, entry := range entries {
		digits, ok := strings.CutPrefix(entry.Name(), "v")
		v, err := strconv.ParseInt(digits, 10, 64)
		if !ok || err != nil || entry.Name() != fmt.Sprintf("v%06d", v) {
			continue
		}
		newest, there[v] = max(newest, v), true
		c.onDisk(filepath.Join(dir, entry.Name()), v)
	}
	if last := int64(len(c.log.versions) - 1); newest > last && !c.lastOf(newest) || newest < last && c.version(last).sent {
		c.fail(RuleVersion, -1, "version %d is the newest on the disk, and version %d in the log", newest, last)
	}
	for v := max(newest-versionsKept, 1); v < newest; v++ {
		if c.version(v).sent && !there[v] {
			c.fail(RuleVersion, -1, "version %d was sent, and is gone from the disk, whose newest is version %d", v, newest)
		}
	}
}

// versionsKept is store.keep_versions: as many versions before the newest are there.
const versionsKept = 3

func (c *check) onDisk(dir string, v int64) {
	text, err := os.ReadFile(filepath.Join(dir, "manifest.json"))
	if err != nil {
		c.fail(RuleVersion, -1, "version %d on the disk: %v", v, err)
		return
	}
	var m manifestWord
	if err := json.Unmarshal(text, &m); err != nil {
		c.fail(RuleVersion, -1, "the manifest of version %d on the disk: %v", v, err)
		return
	}
	c.manifest(-1, v, &m)
	for _, f := range m.Files {
		content, err := os.ReadFile(filepath.Join(dir, f.Name))
		if err != nil {
			c.fail(RuleVersion, -1, "version %d on the disk: %v", v, err)
			continue
		}
		c.says(RuleVersion, -1, v, f.Name, hashOf(content))
	}
}
