package taskset

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/BurntSushi/toml"
)

// harborTest is how Harbor's tasks are judged, and where their tests lie meanwhile.
const harborTest, harborTests = "bash /tests/test.sh", "/tests"

// harborFile is what is read of a task.toml, in its present and its older spellings.
type harborFile struct {
	Version       string `toml:"version"`
	SchemaVersion string `toml:"schema_version"`
	Task          struct {
		Name string `toml:"name"`
	} `toml:"task"`
	Metadata map[string]any `toml:"metadata"`
	Agent    struct {
		TimeoutSec float64 `toml:"timeout_sec"`
	} `toml:"agent"`
	Verifier struct {
		TimeoutSec      float64           `toml:"timeout_sec"`
		Env             map[string]string `toml:"env"`
		EnvironmentMode string            `toml:"environment_mode"`
	} `toml:"verifier"`
	Environment harborEnvironment `toml:"environment"`
	Solution    map[string]any    `toml:"solution"`
	Steps       []map[string]any  `toml:"steps"`
}

type harborEnvironment struct {
	DockerImage     string            `toml:"docker_image"`
	BuildTimeoutSec float64           `toml:"build_timeout_sec"`
	CPUs            float64           `toml:"cpus"`
	MemoryMB        int64             `toml:"memory_mb"`
	Memory          string            `toml:"memory"`
	StorageMB       int64             `toml:"storage_mb"`
	Storage         string            `toml:"storage"`
	GPUs            int               `toml:"gpus"`
	AllowInternet   *bool             `toml:"allow_internet"`
	NetworkMode     string            `toml:"network_mode"`
	Env             map[string]string `toml:"env"`
}

// isHarbor reports whether a directory is a Harbor task or has some.
func isHarbor(dir string) bool {
	if exists(filepath.Join(dir, "task.toml")) {
		return true
	}
	entries, _ := os.ReadDir(dir)
	return slices.ContainsFunc(entries, func(e fs.DirEntry) bool { return exists(filepath.Join(dir, e.Name(), "task.toml")) })
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// harbor reads a Harbor task, or those of a directory by their names: task.toml, instruction.md, what is in
// environment as files of the sandbox's working directory, and tests as hidden files that are judged
// by bash /tests/test.sh. The solution is never read. Images are not built: an image that task.toml
// names is in Wants, a Dockerfile is not honoured and a warning says so.
func (l *loader) harbor(dir string) {
	folders := []string{dir}
	if !exists(filepath.Join(dir, "task.toml")) {
		entries, err := os.ReadDir(dir)
		if err != nil {
			l.begin(dir)
			l.report(0, "%v", why(err))
			return
		}
		folders = nil
		for _, e := range entries {
			folder := filepath.Join(dir, e.Name())
			if exists(filepath.Join(folder, "task.toml")) || exists(filepath.Join(folder, "instruction.md")) {
				folders = append(folders, folder)
			} else if holdsTasks(e.Name()) && !e.IsDir() {
				l.set.warnings = append(l.set.warnings, fmt.Sprintf("%s is not read: it lies beside folders with a task.toml, which are the tasks", folder))
			}
		}
	}
	notes := harborNotes{}
	for _, folder := range folders {
		h := &harborFolder{loader: l, dir: folder, notes: notes}
		h.read()
	}
	l.set.warnings = append(l.set.warnings, notes.lines()...)
}

// harborNotes are what is not honoured, each with the tasks that it is of.
type harborNotes map[string][]string

func (n harborNotes) lines() []string {
	var lines []string
	for _, what := range slices.Sorted(maps.Keys(n)) {
		of := n[what]
		if len(of) == 1 {
			lines = append(lines, fmt.Sprintf("%s: %s", of[0], what))
			continue
		}
		lines = append(lines, fmt.Sprintf("%s and %d other tasks: %s", of[0], len(of)-1, what))
	}
	return lines
}

// harborFolder is a task that is being read.
type harborFolder struct {
	*loader
	dir   string
	notes harborNotes
	file  harborFile
	task  Task
}

func (h *harborFolder) note(format string, args ...any) {
	what := fmt.Sprintf(format, args...)
	h.notes[what] = append(h.notes[what], h.task.ID)
}

func (h *harborFolder) read() {
	h.begin(filepath.Join(h.dir, "task.toml"))
	before := h.found.count
	h.task.ID = filepath.Base(h.dir)
	text, ok := h.plain("task.toml")
	if !ok || !h.parse(text) {
		return
	}
	instruction := h.instruction()
	h.task.Hidden = h.tree("tests", harborTests, nil)
	if h.task.Hidden[harborTests+"/test.sh"] == nil {
		h.report(0, "there is no tests/test.sh: who judges?")
	}
	h.environment()
	h.settings()
	if h.found.count > before {
		return
	}
	h.task.Test = harborTest
	for name, content := range h.task.Files {
		h.bytes += len(name) + len(content)
	}
	fmt.Fprintf(h.digest, "%s\n%s\n", h.task.ID, text)
	fmt.Fprintf(h.instructions, "%d\n%s", len(instruction), instruction)
	for _, files := range []map[string][]byte{h.task.Files, h.task.Hidden} {
		for _, name := range slices.Sorted(maps.Keys(files)) {
			fmt.Fprintf(h.digest, "%s %d\n%s", name, len(files[name]), files[name])
		}
	}
	h.take(entry{task: &h.task, file: int32(len(h.set.files) - 1)}, &h.task)
}

// plain reads a file of the folder that is text.
func (h *harborFolder) plain(name string) (string, bool) {
	f, err := os.Open(filepath.Join(h.dir, name))
	if err != nil {
		h.report(0, "%s: %v", name, why(err))
		return "", false
	}
	defer f.Close()
	text, err := readAll(f, h.opt.LineMax)
	switch {
	case err != nil:
		h.report(0, "%s: %v", name, why(err))
	case !utf8.Valid(text):
		h.report(0, "%s is no UTF-8", name)
	case slices.Contains(text, 0):
		h.report(0, "%s has a NUL", name)
	default:
		return string(text), true
	}
	return "", false
}

// parse reads task.toml; Fields are all of it.
func (h *harborFolder) parse(text string) bool {
	meta, err := toml.Decode(text, &h.file)
	if err != nil {
		if at, ok := errors.AsType[toml.ParseError](err); ok {
			h.report(at.Position.Line, "%s", at.Message)
			return false
		}
		h.report(0, "%s", strings.TrimPrefix(err.Error(), "toml: ")) // which says the line itself
		return false
	}
	if h.file.Task.Name != "" {
		h.task.ID = h.file.Task.Name
	}
	for _, key := range meta.Undecoded() {
		if k := key.String(); !strings.HasPrefix(k, "task.") && !strings.HasPrefix(k, "metadata.") && !strings.HasPrefix(k, "solution.") {
			h.note("%s of task.toml is not honoured", k)
		}
	}
	var all map[string]any
	toml.Decode(text, &all) // it was found to be right
	h.task.Fields = map[string]json.RawMessage{}
	for name, value := range all {
		if h.task.Fields[name], err = json.Marshal(value); err != nil {
			h.report(0, "%s cannot be written as JSON: %v", name, err)
		}
	}
	return true
}

// instruction reads the prompt.
func (h *harborFolder) instruction() string {
	text, ok := h.plain("instruction.md")
	if !ok {
		return ""
	}
	if strings.TrimSpace(text) == "" {
		h.report(0, "instruction.md is empty: it is the prompt")
		return ""
	}
	content, _ := json.Marshal(text)
	if h.opt.System != "" {
		system, _ := json.Marshal(h.opt.System)
		h.task.Messages = append(h.task.Messages, message("system", system))
	}
	h.task.Messages = append(h.task.Messages, message("user", content))
	return text
}

// tree reads the files of a folder, to be put at a place in the sandbox.
func (h *harborFolder) tree(folder, at string, skip func(name string) bool) map[string][]byte {
	root := filepath.Join(h.dir, folder)
	files := map[string][]byte{}
	err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		inner, _ := filepath.Rel(root, name)
		inner = filepath.ToSlash(inner)
		switch {
		case skip != nil && skip(inner):
		case !d.Type().IsRegular():
			h.report(0, "%s/%s is no plain file: links and the like are not followed", folder, inner)
		default:
			f, err := os.Open(name)
			if err != nil {
				return err
			}
			defer f.Close()
			content, err := readAll(f, h.opt.LineMax)
			if err != nil {
				return fmt.Errorf("%s/%s: %w", folder, inner, err)
			}
			files[path.Join(at, inner)] = content
		}
		return nil
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) { // which no environment is, and without tests is said elsewhere
		h.report(0, "%s: %v", folder, why(err))
	}
	return files
}

// environment reads what lies beside the Dockerfile, and says what cannot be honoured.
func (h *harborFolder) environment() {
	built, composed := false, ""
	h.task.Files = h.tree("environment", h.opt.Work, func(name string) bool {
		low := strings.ToLower(name)
		switch {
		case low == "dockerfile" || strings.HasSuffix(low, ".dockerfile") || strings.HasPrefix(low, "dockerfile."):
			built = true
			return true
		case strings.HasPrefix(low, "docker-compose") || strings.HasPrefix(low, "compose.y"):
			composed = name
			return true
		}
		return low == ".dockerignore"
	})
	switch image := h.file.Environment.DockerImage; {
	case composed != "":
		h.report(0, "environment/%s asks for several containers, and there is one sandbox: leave the task out", composed)
	case image != "":
		h.note("it names the image %s: a driver with images starts from it, with another the sandbox's root stands in", image)
	case built:
		h.note("its environment/Dockerfile is not built and nothing of it is honoured: the sandbox's root stands in, and the files beside it are put into %s; name a built image as environment.docker_image, or a root that has what it installs", h.opt.Work)
	}
	h.task.Wants.Image = h.file.Environment.DockerImage
}

// harborTestS is how long Harbor's tests may take where the task does not say, in seconds.
const harborTestS = 600

// settings reads the rest of task.toml.
func (h *harborFolder) settings() {
	f, e, wants := &h.file, &h.file.Environment, &h.task.Wants
	for name, seconds := range map[string]float64{"agent.timeout_sec": f.Agent.TimeoutSec, "verifier.timeout_sec": f.Verifier.TimeoutSec} {
		if !(seconds >= 0 && seconds < 1e8) {
			h.report(0, "%s is %g: want seconds from 0", name, seconds)
		}
	}
	wants.VerifierTimeoutS = f.Verifier.TimeoutSec
	if f.Agent.TimeoutSec > 0 { // the tests' time is not the agent's, and a rollout has both
		h.task.TimeoutS = f.Agent.TimeoutSec + cmp.Or(f.Verifier.TimeoutSec, harborTestS)
	}
	if !(e.CPUs >= 0) || e.MemoryMB < 0 || e.StorageMB < 0 {
		h.report(0, "environment: cpus, memory_mb and storage_mb are %g, %d and %d: want none below 0", e.CPUs, e.MemoryMB, e.StorageMB)
	}
	wants.CPUs, wants.Env, wants.VerifierEnv = e.CPUs, e.Env, f.Verifier.Env
	wants.MemoryMB = h.size("memory", e.MemoryMB, e.Memory)
	wants.DiskMB = h.size("storage", e.StorageMB, e.Storage)
	wants.Network = e.AllowInternet != nil && *e.AllowInternet || e.NetworkMode == "public" || e.NetworkMode == "allowlist"
	h.task.Level = map[string]int{"easy": 1, "medium": 2, "hard": 3}[fmt.Sprint(f.Metadata["difficulty"])]
	switch {
	case len(f.Steps) > 0:
		h.report(0, "the task has %d steps: want one instruction and one test", len(f.Steps))
	case e.GPUs > 0:
		h.note("it wants %d GPUs: sandboxes have none", e.GPUs)
	case f.Verifier.EnvironmentMode == "separate":
		h.note("it wants to be judged in a sandbox of its own: the tests run in the policy's")
	}
	for name, value := range wants.VerifierEnv {
		if strings.Contains(value, "${") {
			h.note("verifier.env.%s takes a variable of the host: it is handed on as it stands", name)
		}
	}
}

// size reads megabytes, or the older text such as 2G.
func (h *harborFolder) size(name string, mb int64, text string) int64 {
	if text == "" {
		return mb
	}
	var n float64
	var unit string
	if count, _ := fmt.Sscanf(strings.ToUpper(text), "%f%s", &n, &unit); count < 2 || !(n > 0 && n < 1e9) {
		unit = ""
	}
	switch strings.TrimSuffix(strings.TrimSuffix(unit, "B"), "I") {
	case "M":
		return int64(n)
	case "G":
		return int64(n * 1024)
	case "T":
		return int64(n * 1024 * 1024)
	}
	h.report(0, "environment.%s is %q: want a size such as 512M or 2G", name, text)
	return 0
}
