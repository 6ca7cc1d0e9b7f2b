package main

import (
	"archive/zip"
	"bytes"
	"context"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/base64"
	"encoding/csv"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

const programPath = "github.com/headway-rl/headway/cmd/headway"

// wheel is a Python package with the program, as it was read from its file.
type wheel struct {
	file    string
	version string   // of the package
	tags    []string // of the file's name, one for each platform
	files   map[string][]byte
	modes   map[string]os.FileMode
	program []byte
	info    *buildinfo.BuildInfo
}

// openWheel reads a wheel.
func openWheel(file string) (*wheel, error) {
	words := strings.Split(strings.TrimSuffix(filepath.Base(file), ".whl"), "-")
	if len(words) != 5 || !strings.HasSuffix(file, ".whl") {
		return nil, errors.New("a wheel is named NAME-VERSION-PYTHON-ABI-PLATFORM.whl")
	}
	w := &wheel{file: file, version: words[1], files: map[string][]byte{}, modes: map[string]os.FileMode{}}
	for _, platform := range strings.Split(words[4], ".") {
		w.tags = append(w.tags, words[2]+"-"+words[3]+"-"+platform)
	}
	archive, err := zip.OpenReader(file)
	if err != nil {
		return nil, err
	}
	defer archive.Close()
	for _, entry := range archive.File {
		r, err := entry.Open()
		if err != nil {
			return nil, err
		}
		text, err := io.ReadAll(r)
		if err := errors.Join(err, r.Close()); err != nil {
			return nil, fmt.Errorf("%s: %w", entry.Name, err)
		}
		w.files[entry.Name], w.modes[entry.Name] = text, entry.Mode()
	}
	name := "headway-" + w.version + ".data/scripts/headway"
	if w.program = w.files[name]; w.program == nil {
		return nil, errors.New("has no program " + name)
	}
	if w.modes[name]&0o111 == 0 {
		return nil, errors.New(name + " is not executable")
	}
	w.info, err = buildinfo.Read(bytes.NewReader(w.program))
	return w, err
}

// metadata is the content of a file of the folder dist-info.
func (w *wheel) metadata(name string) []byte {
	return w.files["headway-"+w.version+".dist-info/"+name]
}

// setting is what the program's Go toolchain recorded of its build.
func (w *wheel) setting(key string) string {
	for _, s := range w.info.Settings {
		if s.Key == key {
			return s.Value
		}
	}
	return ""
}

// platform is the program's, as GOOS/GOARCH.
func (w *wheel) platform() string { return w.setting("GOOS") + "/" + w.setting("GOARCH") }

// check holds everything against the file's name and the program that can be checked without running it.
func (w *wheel) check() error {
	return errors.Join(w.checkRecord(), w.checkTags(), w.checkBuild(), checkFormat(w.program, w.setting("GOARCH"), w.tags), w.checkStatements())
}

// checkRecord compares every file with the list of sums that installers go by.
func (w *wheel) checkRecord() error {
	rows, err := csv.NewReader(bytes.NewReader(w.metadata("RECORD"))).ReadAll()
	if err != nil {
		return fmt.Errorf("RECORD: %w", err)
	}
	left := maps.Clone(w.files)
	for _, row := range rows {
		text, ok := left[row[0]]
		if !ok {
			return fmt.Errorf("RECORD lists %s, which is not there, or twice", row[0])
		}
		delete(left, row[0])
		sum := sha256.Sum256(text)
		if want := "sha256=" + base64.RawURLEncoding.EncodeToString(sum[:]); row[1] != want && !strings.HasSuffix(row[0], "/RECORD") {
			return fmt.Errorf("RECORD: %s has the sum %s, not %s", row[0], want, row[1])
		}
	}
	if len(left) > 0 {
		return fmt.Errorf("RECORD does not list %s", slices.Sorted(maps.Keys(left)))
	}
	return nil
}

// checkTags compares the tags inside with those of the file's name.
func (w *wheel) checkTags() error {
	var tags []string
	pure := ""
	for line := range strings.Lines(string(w.metadata("WHEEL"))) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
		switch key {
		case "Tag":
			tags = append(tags, value)
		case "Root-Is-Purelib":
			pure = value
		}
	}
	slices.Sort(tags)
	if want := slices.Sorted(slices.Values(w.tags)); !slices.Equal(tags, want) || pure != "false" {
		return fmt.Errorf("WHEEL has the tags %v and Root-Is-Purelib %q, the file's name %v and false", tags, pure, want)
	}
	return nil
}

// checkBuild says whether the program is ours, needs no C library, and holds no path of the machine that built it.
func (w *wheel) checkBuild() error {
	if w.info.Path != programPath {
		return fmt.Errorf("the program is %s, not %s", w.info.Path, programPath)
	}
	for key, want := range map[string]string{"CGO_ENABLED": "0", "-trimpath": "true"} {
		if got := w.setting(key); got != want {
			return fmt.Errorf("the program was built with %s=%q, not %q", key, got, want)
		}
	}
	return nil
}

// statement is what is read of provenance.json.
type statement struct {
	Subject []struct {
		Digest struct {
			SHA256 string `json:"sha256"`
		} `json:"digest"`
	} `json:"subject"`
	Predicate struct {
		BuildDefinition struct {
			InternalParameters struct {
				Go string `json:"go"`
			} `json:"internalParameters"`
			ResolvedDependencies []struct {
				Digest struct {
					GitCommit string `json:"gitCommit"`
				} `json:"digest"`
			} `json:"resolvedDependencies"`
		} `json:"buildDefinition"`
	} `json:"predicate"`
}

// checkStatements holds the provenance and the bill of materials to the program that is beside them.
func (w *wheel) checkStatements() error {
	sum := sha256.Sum256(w.program)
	want := hex.EncodeToString(sum[:])
	said, err := w.provenance()
	if err != nil {
		return err
	}
	if got := said.Subject[0].Digest.SHA256; got != want {
		return fmt.Errorf("provenance.json is of a program with the sum %s, not %s", got, want)
	}
	if got := said.Predicate.BuildDefinition.InternalParameters.Go; got != w.info.GoVersion {
		return fmt.Errorf("provenance.json says %s, the program %s", got, w.info.GoVersion)
	}
	document, err := bill(w.info, w.program, w.version)
	if err != nil {
		return err
	}
	var text bytes.Buffer
	if err := encode(&text, document); err != nil {
		return err
	}
	if !bytes.Equal(text.Bytes(), w.metadata("sboms/headway.cdx.json")) {
		return errors.New("sboms/headway.cdx.json is not the bill of this program")
	}
	return nil
}

// provenance reads provenance.json.
func (w *wheel) provenance() (s statement, err error) {
	if err := json.Unmarshal(w.metadata("extra_metadata/provenance.json"), &s); err != nil {
		return s, fmt.Errorf("provenance.json: %w", err)
	}
	if len(s.Subject) != 1 || len(s.Predicate.BuildDefinition.ResolvedDependencies) != 1 {
		return s, errors.New("provenance.json: wants one subject and one source")
	}
	return s, nil
}

// try runs the program, and compares what it says of itself with the package.
func (w *wheel) try(ctx context.Context, run runner) (string, error) {
	dir, err := os.MkdirTemp("", "headway-wheel-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)
	program := filepath.Join(dir, "headway")
	if err := os.WriteFile(program, w.program, 0o700); err != nil {
		return "", err
	}
	text, err := run(ctx, dir, program, "version", "--json")
	if err != nil {
		return "", err
	}
	var said struct {
		Version, Revision, Origin string
		Modified                  bool
	}
	if err := json.Unmarshal(text, &said); err != nil {
		return "", fmt.Errorf("headway version --json: %w", err)
	}
	from, err := w.provenance()
	if err != nil {
		return "", err
	}
	if commit := from.Predicate.BuildDefinition.ResolvedDependencies[0].Digest.GitCommit; said.Version != w.version || said.Revision != commit || said.Origin != "wheel" {
		return "", fmt.Errorf("the program says version %s of commit %q from %q, the package %s of commit %q from wheel", said.Version, said.Revision, said.Origin, w.version, commit)
	}
	words := fmt.Sprintf("it says version %s, commit %.12s", said.Version, said.Revision)
	if said.Modified {
		words += " with uncommitted changes"
	}
	return words, nil
}

// wheels checks wheels, runs the programs that this machine can run, and says of the others that they were not run.
// here is this machine's platform, as GOOS/GOARCH.
func wheels(ctx context.Context, run runner, here string, files []string, out io.Writer) error {
	for _, file := range files {
		w, err := openWheel(file)
		if err == nil {
			err = w.check()
		}
		if err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		words := "NOT RUN: this machine is " + here
		if w.platform() == here {
			if words, err = w.try(ctx, run); err != nil {
				return fmt.Errorf("%s: %w", file, err)
			}
			words = "run: " + words
		}
		size, err := os.Stat(file)
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "%s: %.1f MB, program %.1f MB for %s; format, tags, sums, bill and provenance agree; %s\n", file, float64(size.Size())/1e6, float64(len(w.program))/1e6, w.platform(), words)
	}
	return nil
}
