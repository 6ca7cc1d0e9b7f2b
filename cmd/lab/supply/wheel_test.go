package main

import (
	"archive/zip"
	"bytes"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
)

const (
	madeVersion = "0.1.0"
	distInfo    = "headway-0.1.0.dist-info/"
	scripts     = "headway-0.1.0.data/scripts/headway"
)

// smallProgram is a program for a platform, under the name of ours, that says which version it is. It is built as wheels'
// programs are.
func smallProgram(t *testing.T, system, processor, ldflags string) []byte {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod":              "module github.com/headway-rl/headway\n\ngo 1.26\n",
		"cmd/headway/main.go": "package main\n\nimport \"os\"\n\nfunc main() { os.Stdout.WriteString(`{\"version\":\"0.1.0\",\"revision\":\"c0ffee\",\"origin\":\"wheel\"}`) }\n",
	} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	build := exec.CommandContext(t.Context(), "go", "build", "-ldflags", ldflags, "-o", "program", "./cmd/headway")
	build.Dir, build.Env = dir, append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-trimpath -buildvcs=false -gcflags=all=-dwarf=false", "GOWORK=off", "GOOS="+system, "GOARCH="+processor)
	if text, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	program, err := os.ReadFile(filepath.Join(dir, "program"))
	if err != nil {
		t.Fatal(err)
	}
	return program
}

// platformTags are the platforms that a wheel for this processor names.
func platformTags() []string {
	processor := map[string]string{"amd64": "x86_64", "arm64": "aarch64"}[runtime.GOARCH]
	return []string{"manylinux_2_17_" + processor, "musllinux_1_1_" + processor}
}

// madeFiles are the files of a wheel with this program; RECORD is missing.
func madeFiles(t *testing.T, program []byte) map[string]string {
	t.Helper()
	info, err := buildinfo.Read(bytes.NewReader(program))
	if err != nil {
		t.Fatal(err)
	}
	document, err := bill(info, program, madeVersion)
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	if err := encode(&text, document); err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(program)
	tags := ""
	for _, platform := range platformTags() {
		tags += "Tag: py3-none-" + platform + "\n"
	}
	return map[string]string{
		scripts:                             string(program),
		distInfo + "WHEEL":                  "Root-Is-Purelib: false\n" + tags,
		distInfo + "sboms/headway.cdx.json": text.String(),
		distInfo + "extra_metadata/provenance.json": fmt.Sprintf(`{"subject": [{"digest": {"sha256": %q}}], "predicate": {"buildDefinition": {
			"internalParameters": {"go": %q}, "resolvedDependencies": [{"digest": {"gitCommit": "c0ffee"}}]}}}`, hex.EncodeToString(sum[:]), info.GoVersion),
	}
}

// record lists files as RECORD does.
func record(files map[string]string) string {
	text := distInfo + "RECORD,,\n"
	for _, name := range slices.Sorted(maps.Keys(files)) {
		sum := sha256.Sum256([]byte(files[name]))
		text += fmt.Sprintf("%s,sha256=%s,%d\n", name, base64.RawURLEncoding.EncodeToString(sum[:]), len(files[name]))
	}
	return text
}

// writeWheel writes a wheel of these files.
func writeWheel(t *testing.T, platforms string, mode os.FileMode, files map[string]string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "headway-0.1.0-py3-none-"+platforms+".whl")
	out, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	archive := zip.NewWriter(out)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		header := &zip.FileHeader{Name: name, Method: zip.Store}
		header.SetMode(mode)
		entry, err := archive.CreateHeader(header)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := entry.Write([]byte(files[name])); err != nil {
			t.Fatal(err)
		}
	}
	if err := archive.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestWheels: a wheel whose parts agree passes and its program is run; each disagreement is named.
func TestWheels(t *testing.T) {
	if runtime.GOOS != "linux" || platformTags()[0] == "manylinux_2_17_" {
		t.Skip("the small program is built for Linux on amd64 and arm64, and run")
	}
	program := smallProgram(t, "linux", runtime.GOARCH, "-s -w")
	platforms := strings.Join(platformTags(), ".")
	for name, c := range map[string]struct {
		platforms string
		mode      os.FileMode
		change    func(files map[string]string)
		tamper    func(files map[string]string) // after RECORD was written
		want      string
	}{
		"whole":        {want: "agree; run: it says version 0.1.0, commit c0ffee"},
		"another name": {platforms: "macosx_12_0_arm64", want: "WHEEL has the tags"},
		"other tags": {platforms: "macosx_12_0_arm64", change: func(f map[string]string) {
			f[distInfo+"WHEEL"] = "Root-Is-Purelib: false\nTag: py3-none-macosx_12_0_arm64\n"
		}, want: "the file's name has the tags"},
		"pure": {change: func(f map[string]string) {
			f[distInfo+"WHEEL"] = strings.Replace(f[distInfo+"WHEEL"], "false", "true", 1)
		}, want: "Root-Is-Purelib"},
		"a mode":        {mode: 0o644, want: "is not executable"},
		"no program":    {change: func(f map[string]string) { delete(f, scripts) }, want: "has no program"},
		"a sum":         {tamper: func(f map[string]string) { f[distInfo+"WHEEL"] += "\n" }, want: "RECORD: " + distInfo + "WHEEL has the sum"},
		"a file more":   {tamper: func(f map[string]string) { f["more.py"] = "" }, want: "RECORD does not list [more.py]"},
		"a file less":   {tamper: func(f map[string]string) { delete(f, distInfo+"WHEEL") }, want: "which is not there"},
		"another bill":  {change: func(f map[string]string) { f[distInfo+"sboms/headway.cdx.json"] += " " }, want: "not the bill"},
		"no provenance": {change: func(f map[string]string) { delete(f, distInfo+"extra_metadata/provenance.json") }, want: "provenance.json"},
		"another sum": {change: func(f map[string]string) {
			f[distInfo+"extra_metadata/provenance.json"] = strings.Replace(f[distInfo+"extra_metadata/provenance.json"], `"sha256": "`, `"sha256": "0`, 1)
		}, want: "provenance.json is of a program with the sum 0"},
		"another commit": {change: func(f map[string]string) {
			f[distInfo+"extra_metadata/provenance.json"] = strings.Replace(f[distInfo+"extra_metadata/provenance.json"], "c0ffee", "decaf", 1)
		}, want: `the program says version 0.1.0 of commit "c0ffee"`},
	} {
		files := madeFiles(t, program)
		if c.change != nil {
			c.change(files)
		}
		files[distInfo+"RECORD"] = record(files)
		if c.tamper != nil {
			c.tamper(files)
		}
		if c.platforms == "" {
			c.platforms = platforms
		}
		if c.mode == 0 {
			c.mode = 0o755
		}
		var out strings.Builder
		err := wheels(t.Context(), run, runtime.GOOS+"/"+runtime.GOARCH, []string{writeWheel(t, c.platforms, c.mode, files)}, &out)
		if got := fmt.Sprint(out.String(), err); !strings.Contains(got, c.want) || (err == nil) != (name == "whole") {
			t.Errorf("%s: %s\nwant %q", name, got, c.want)
		}
	}
	whole := madeFiles(t, program)
	whole[distInfo+"RECORD"] = record(whole)
	var out strings.Builder
	if err := wheels(t.Context(), nil, "plan9/386", []string{writeWheel(t, platforms, 0o755, whole)}, &out); err != nil || !strings.Contains(out.String(), "NOT RUN: this machine is plan9/386") {
		t.Errorf("%v: %s\nwant that it was not run", err, out.String())
	}
	unstripped := madeFiles(t, smallProgram(t, "linux", runtime.GOARCH, ""))
	unstripped[distInfo+"RECORD"] = record(unstripped)
	if err := wheels(t.Context(), run, "", []string{writeWheel(t, platforms, 0o755, unstripped)}, &out); err == nil || !strings.Contains(err.Error(), "not stripped") {
		t.Errorf("a program with its symbols passes: %v", err)
	}
}

// TestMachO: a program for macOS is for the processor and the oldest macOS of its tag, and is signed.
func TestMachO(t *testing.T) {
	if os.Getenv("HEADWAY_LONG") == "" {
		t.Skip("HEADWAY_LONG is not set: Go's library would be compiled for macOS")
	}
	program := smallProgram(t, "darwin", "arm64", "-s -w")
	signature := []byte{loadCodeSignature, 0, 0, 0, 16, 0, 0, 0}
	at := bytes.Index(program, signature)
	if at < 0 {
		t.Fatal("the program has no signature")
	}
	unsigned := slices.Clone(program)
	unsigned[at] = loadCodeSignature + 1
	for name, c := range map[string]struct {
		program        []byte
		processor, tag string
		want           string
	}{
		"whole":             {program, "arm64", "macosx_12_0_arm64", ""},
		"an older macOS":    {program, "arm64", "macosx_11_0_arm64", "the program is for py3-none-macosx_12_0_arm64"},
		"another processor": {program, "amd64", "macosx_12_0_x86_64", "the program is for"},
		"no signature":      {unsigned, "arm64", "macosx_12_0_arm64", "is not signed"},
	} {
		err := checkFormat(c.program, c.processor, []string{"py3-none-" + c.tag})
		if got := fmt.Sprint(err); (err == nil) != (name == "whole") || !strings.Contains(got, c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}
