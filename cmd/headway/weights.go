package main

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/headway-rl/headway/app"
	"github.com/headway-rl/headway/app/catalog"
	"github.com/headway-rl/headway/app/command"
	"github.com/headway-rl/headway/app/parts"
	"github.com/headway-rl/headway/config"
	"github.com/headway-rl/headway/engine/upstream"
	"github.com/headway-rl/headway/internal/failure"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/observe/report"
	"github.com/headway-rl/headway/store/weights"
)

// weightsCmd looks after the published versions of a run. All but prune --yes only read,
// also while the run goes on.
type weightsCmd struct {
	List   weightsListCmd   `cmd:"" default:"withargs" help:"List the versions (what weights alone does)."`
	Show   weightsShowCmd   `cmd:"" help:"Print the files and tensors of a version."`
	Verify weightsVerifyCmd `cmd:"" help:"Read versions and compare them with their hashes."`
	Diff   weightsDiffCmd   `cmd:"" help:"Say how two versions differ, and how large the delta would be."`
	Prune  weightsPruneCmd  `cmd:"" help:"Delete old versions; says which ones, and deletes them with --yes."`
}

// weightsPlace says whose versions are meant.
type weightsPlace struct {
	command.Output
	Of string `name:"run" placeholder:"RUN" help:"A run directory, or one of versions (default: the newest run in runs)."`
}

// runsDir is the folder of all runs where nothing else is said.
const runsDir = "runs"

// cannotRead is why a path cannot be read, worded as for documents.
func cannotRead(path string, err error) error {
	if of, ok := errors.AsType[*fs.PathError](err); ok {
		err = of.Err
	}
	return fmt.Errorf("%s: cannot be read: %w", path, err)
}

// weightsDir finds the directory of versions that a person means, and the run it is of,
// "" if it is of none.
func weightsDir(path string) (dir, run string, err error) {
	if path == "" {
		if path, err = newestRun(runsDir); err != nil {
			return "", "", err
		}
	}
	info, err := os.Stat(path)
	if err != nil {
		return "", "", failure.Usage("name a run directory, such as runs/NAME, or a directory of versions", "%w", cannotRead(path, err))
	}
	if !info.IsDir() {
		return "", "", failure.Usage("name its directory", "%s is a file", path)
	}
	inside := filepath.Join(path, "weights")
	if info, err := os.Stat(inside); err == nil && info.IsDir() {
		return inside, path, nil
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return "", "", failure.Usage("", "%w", err)
	}
	if slices.ContainsFunc(entries, func(e os.DirEntry) bool { return isVersionDir(path, e.Name()) }) {
		whole, err := filepath.EvalSymlinks(path)
		if err == nil {
			whole, err = filepath.Abs(whole)
		}
		if err != nil {
			return "", "", failure.Usage("", "%w", err)
		}
		if filepath.Base(whole) == "weights" {
			run = filepath.Dir(whole)
		}
		return path, run, nil
	}
	if newest, err := parts.NewestSaved(path); err == nil && newest != loop.NoVersion {
		return "", "", failure.Usage("use the service's own tools for the versions that it has saved", "the weights of %s are with the service that trained it: version %d is the newest, and %s has the paths", path, newest, filepath.Join(path, parts.HostedDir))
	}
	return "", "", failure.Usage("name a run directory, such as runs/NAME, or a directory of versions", "%s has neither a directory weights nor versions", path)
}

// isVersionDir reports whether a directory is that of a version.
func isVersionDir(dir, name string) bool {
	if matched, _ := filepath.Match("v[0-9][0-9][0-9][0-9][0-9][0-9]*", name); !matched {
		return false
	}
	_, err := os.Stat(filepath.Join(dir, name, weights.ManifestName))
	return err == nil
}

// newestRun is the run directory whose versions were changed last.
func newestRun(folder string) (string, error) {
	found, err := filepath.Glob(filepath.Join(folder, "*", "weights"))
	if err != nil || len(found) == 0 {
		return "", failure.Usage("name a run directory, or a directory of versions", "there is no run with weights in %s", folder)
	}
	changed := func(path string) time.Time {
		info, err := os.Stat(path)
		if err != nil {
			return time.Time{}
		}
		return info.ModTime()
	}
	return filepath.Dir(slices.MaxFunc(found, func(a, b string) int { return changed(a).Compare(changed(b)) })), nil
}

// openWeights opens versions to look at them.
func openWeights(path string) (*weights.Store, string, error) {
	dir, _, err := weightsDir(path)
	if err != nil {
		return nil, "", err
	}
	s, err := weights.Open(dir, weights.Options{ReadOnly: true})
	return s, dir, err
}

// parseVersionNumber reads a version as people write it: 17, v17 or v000017.
func parseVersionNumber(s *weights.Store, text string) (loop.Version, error) {
	if text == "latest" {
		if v := s.Newest(); v != loop.NoVersion {
			return v, nil
		}
		return 0, noneNewest(s)
	}
	var v loop.Version
	digits := strings.TrimPrefix(text, "v")
	if _, err := fmt.Sscanf(digits, "%d", &v); err != nil || v < 0 || strings.Trim(digits, "0123456789") != "" {
		return 0, failure.Usage("name a version by its number, such as 17, or latest", "%q is no version", text)
	}
	return v, nil
}

// noneNewest says why there is no newest version: the first that cannot be read, from the
// newest on, or that there is none with weights.
func noneNewest(s *weights.Store) error {
	versions, err := s.Versions()
	if err != nil {
		return err
	}
	for _, v := range slices.Backward(versions) {
		if _, err := s.Manifest(v); err != nil && !errors.Is(err, weights.ErrNotFound) {
			return failure.Run("name another version by its number; headway weights list says which are whole", "the newest version, %d, cannot be read: %w", v, err)
		}
	}
	return failure.Run("", "there is no version with weights")
}

// weightsVersion is a version as headway weights prints it.
type weightsVersion struct {
	Version loop.Version `json:"version"`
	Kind    string       `json:"kind"`
	Lease   loop.LeaseID `json:"lease"`
	// Bytes and Tensors are of all files; DTypes are those of the model.
	Bytes   int64    `json:"bytes"`
	Tensors int      `json:"tensors"`
	DTypes  []string `json:"dtypes"`
	AgeS    float64  `json:"age_wall_s"`
	// State is newest (of those with weights), stored, sent (its weights went to engines by a collective, and
	// are not stored), empty (it has none: its step shares a sync with others), or damaged.
	State        string        `json:"state"`
	RestoredFrom *loop.Version `json:"restored_from,omitempty"`
	// Derived names what was made from it: deltas and casts.
	Derived []string `json:"derived"`
	Error   string   `json:"error,omitempty"`
}

// weightsListCmd lists versions.
type weightsListCmd struct {
	command.Output
	Path string `arg:"" optional:"" name:"run" help:"A run directory, or one of versions (default: the newest run in runs)."`
}

// Run prints a line a version.
func (c *weightsListCmd) Run(a *app.Process) error {
	dir, run, err := weightsDir(c.Path)
	if err != nil {
		return err
	}
	s, err := weights.Open(dir, weights.Options{ReadOnly: true})
	if err != nil {
		return err
	}
	versions, err := s.Versions()
	if err != nil {
		return err
	}
	newest, sent := s.Newest(), sentVersions(run)
	list := []weightsVersion{}
	for _, v := range versions {
		if line := describeVersion(s, v, newest, a.Now()); line != nil {
			if line.State == "empty" && sent(v) {
				line.State = "sent"
			}
			list = append(list, *line)
		}
	}
	if c.JSON {
		return printJSON(a.Stdout, struct {
			Dir      string           `json:"dir"`
			Versions []weightsVersion `json:"versions"`
		}{dir, list})
	}
	if len(list) == 0 {
		_, err := fmt.Fprintf(a.Stdout, "%s has no versions yet\n", dir)
		return err
	}
	table := report.Table{Title: dir, Header: []string{"version", "kind", "lease", "size", "tensors", "dtype", "age", "state", "derived"}}
	for _, v := range list {
		kind := v.Kind
		if v.RestoredFrom != nil {
			kind += fmt.Sprintf(" of %d", *v.RestoredFrom)
		}
		table.Rows = append(table.Rows, []string{fmt.Sprint(v.Version), kind, fmt.Sprint(v.Lease), byteSize(v.Bytes), fmt.Sprint(v.Tensors),
			strings.Join(v.DTypes, " "), ageText(v.AgeS), storedText(v.State, v.Version < list[len(list)-1].Version), strings.Join(v.Derived, " ")})
	}
	_, err = table.WriteTo(a.Stdout)
	return err
}

// sentVersions says which versions without stored weights a run's engines got by a collective, as its document has
// it; none where there is no run, or no document that can be read.
func sentVersions(run string) func(loop.Version) bool {
	document, err := config.LoadRecorded(filepath.Join(run, parts.ConfigFile))
	sent := func(e config.Engine) bool { return upstream.Delivery(e.Weights) == upstream.DeliveryDistributed }
	if run == "" || err != nil || !slices.ContainsFunc(document.Engines, sent) {
		return func(loop.Version) bool { return false }
	}
	every := loop.Version(max(document.LoopConfig().SyncEvery, 1))
	return func(v loop.Version) bool { return v%every == 0 }
}

// storedText say for people what has become of a version's weights; followed: there are newer versions.
func storedText(state string, followed bool) string {
	switch {
	case state == "sent":
		return "by collective, not stored"
	case state == "newest" && followed:
		return "newest stored"
	}
	return state
}

// describeVersion looks at one version; nil if it has been pruned meanwhile.
func describeVersion(s *weights.Store, v, newest loop.Version, now time.Time) *weightsVersion {
	line := &weightsVersion{Version: v, State: "stored", DTypes: []string{}, Derived: []string{}}
	m, err := s.Manifest(v)
	if errors.Is(err, weights.ErrNotFound) {
		return nil
	}
	if at, err := s.Published(v); err == nil {
		line.AgeS = max(now.Sub(at).Seconds(), 0)
	}
	if err != nil {
		line.Kind, line.State, line.Error = "unknown", "damaged", err.Error()
		return line
	}
	line.Kind, line.Lease, line.RestoredFrom, line.Tensors = m.Kind, m.Lease, m.RestoredFrom, len(m.Tensors)
	for _, f := range m.Files {
		line.Bytes += f.Size
	}
	for _, t := range m.Tensors {
		if !strings.HasPrefix(t.File, "optimizer.") && !slices.Contains(line.DTypes, string(t.DType)) {
			line.DTypes = append(line.DTypes, string(t.DType))
		}
	}
	slices.Sort(line.DTypes)
	switch {
	case m.Kind == weights.KindNone:
		line.State = "empty"
	case v == newest:
		line.State = "newest"
	}
	if names, err := s.DerivedNames(v); err == nil && names != nil {
		line.Derived = names
	}
	return line
}

// byteSize prints a size in the unit that suits it.
func byteSize(n int64) string {
	size, unit := float64(n), ""
	for _, next := range []string{"kB", "MB", "GB", "TB"} {
		if size < 1000 {
			break
		}
		size, unit = size/1000, next
	}
	if unit == "" {
		return fmt.Sprintf("%d B", n)
	}
	return fmt.Sprintf("%.*f %s", map[bool]int{true: 0, false: 1}[size >= 100], size, unit)
}

// ageText prints an age in the unit that suits it.
func ageText(seconds float64) string {
	switch {
	case seconds < 120:
		return fmt.Sprintf("%.0f s", seconds)
	case seconds < 7200:
		return fmt.Sprintf("%.0f min", seconds/60)
	case seconds < 48*3600:
		return fmt.Sprintf("%.0f h", seconds/3600)
	}
	return fmt.Sprintf("%.0f d", seconds/86400)
}

// weightsPruneCmd deletes old versions.
type weightsPruneCmd struct {
	weightsPlace
	Keep int  `required:"" help:"How many of the newest versions with weights stay, at least 2. A run that died between publishing a version and noting it needs them to go on."`
	Yes  bool `help:"Delete; without it nothing is changed."`
}

// keepMin is the fewest versions with weights that a run may need.
const keepMin = 2

// Run says what would go, and deletes it with --yes.
func (c *weightsPruneCmd) Run(a *app.Process) error {
	if c.Keep < keepMin {
		return failure.Usage(fmt.Sprintf("--keep %d is the least", keepMin), "--keep %d could delete what the run needs to go on", c.Keep)
	}
	dir, run, err := weightsDir(c.Of)
	if err != nil {
		return err
	}
	if c.Yes {
		release, err := catalog.Lock(cmp.Or(run, dir)) // a run must not start meanwhile
		if err != nil {
			return failure.Run("a run that goes on deletes old versions by itself", "%w", err)
		}
		defer release()
	}
	s, err := weights.Open(dir, weights.Options{ReadOnly: !c.Yes})
	if err != nil {
		return err
	}
	keepFrom, gone, err := s.Keep(c.Keep)
	if err != nil {
		return err
	}
	freed := int64(0)
	for _, v := range gone {
		freed += catalog.Size(filepath.Join(dir, fmt.Sprintf("v%06d", v)))
	}
	if c.Yes {
		if err := s.Prune(keepFrom); err != nil {
			return err
		}
	}
	if c.JSON {
		if gone == nil {
			gone = []loop.Version{}
		}
		return printJSON(a.Stdout, struct {
			Dir     string         `json:"dir"`
			Deleted bool           `json:"deleted"`
			Bytes   int64          `json:"bytes"`
			Gone    []loop.Version `json:"versions"`
		}{dir, c.Yes, freed, gone})
	}
	return c.print(a, dir, gone, freed)
}

func (c *weightsPruneCmd) print(a *app.Process, dir string, gone []loop.Version, freed int64) error {
	if len(gone) == 0 {
		_, err := fmt.Fprintf(a.Stdout, "nothing to delete: %s has no versions below its newest %d with weights\n", dir, c.Keep)
		return err
	}
	verb, hint := "deleted", ""
	if !c.Yes {
		verb, hint = "would delete", "; --yes deletes them"
	}
	_, err := fmt.Fprintf(a.Stdout, "%s %s of %s, %d to %d, %s%s\n", verb, report.Counted(len(gone), "version"), dir, gone[0], gone[len(gone)-1], byteSize(freed), hint)
	return err
}
