package dashboard

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"io/fs"
	"os"
	"path"
	"regexp"
	"strings"
	"testing"
)

// mostPageBytes is the limit for all files of the pages together, compressed.
const mostPageBytes = 200_000

// pages returns every file under assets by its path.
func pages(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := fs.WalkDir(os.DirFS("assets"), ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := os.ReadFile(path.Join("assets", name))
		all[name] = string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestPagesAreSmall(t *testing.T) {
	total := 0
	for name, text := range pages(t) {
		if strings.HasSuffix(name, ".md") || strings.HasSuffix(name, ".d.ts") || strings.HasSuffix(name, ".LICENSE") || path.Base(name) == "SHA256SUMS" {
			continue // nobody's browser asks for these
		}
		var packed bytes.Buffer
		out, err := gzip.NewWriterLevel(&packed, gzip.BestCompression)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := out.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
		if err := out.Close(); err != nil {
			t.Fatal(err)
		}
		total += packed.Len()
	}
	t.Logf("all pages together: %d bytes compressed", total)
	if total > mostPageBytes {
		t.Errorf("all pages together are %d bytes compressed, more than %d", total, mostPageBytes)
	}
}

// imports finds what a module imports, statically or when it is first wanted.
var imports = regexp.MustCompile(`(?:^|[^\w."])(?:from\s*|import\s*\(?\s*)"([^"\s]+)"`)

// linked finds what the HTML links.
var linked = regexp.MustCompile(`(?:src|href)="([^"]+)"`)

func TestPagesFindWhatTheyImport(t *testing.T) {
	all := pages(t)
	needs := func(from, to string) {
		if _, found := all[path.Join(path.Dir(from), to)]; !found {
			t.Errorf("%s wants %s, which is not among the pages", from, to)
		}
	}
	for name, text := range all {
		switch path.Ext(name) {
		case ".js":
			for _, found := range imports.FindAllStringSubmatch(withoutComments(text), -1) {
				if !strings.HasPrefix(found[1], ".") {
					t.Errorf("%s imports %q: without an import map a browser takes relative paths alone", name, found[1])
					continue
				}
				needs(name, found[1])
			}
		case ".html":
			for _, found := range linked.FindAllStringSubmatch(text, -1) {
				if !strings.HasPrefix(found[1], "data:") {
					needs(name, found[1])
				}
			}
		}
	}
}

// forbidden are ways by which text becomes markup or code, and by which the Content-Security-Policy would be broken.
var forbidden = regexp.MustCompile(`innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|srcdoc|https?://|\sstyle="|\son[a-z]+="`)

func TestPagesMakeNoMarkupOfText(t *testing.T) {
	for name, text := range pages(t) {
		if strings.HasPrefix(name, "vendor/") || strings.HasSuffix(name, ".md") {
			continue
		}
		for at, line := range strings.Split(text, "\n") {
			if found := forbidden.FindString(line); found != "" {
				t.Errorf("%s:%d has %q: text goes through text nodes, and nothing goes to another machine", name, at+1, strings.TrimSpace(found))
			}
		}
	}
}

func TestVendoredLibrariesAreAsPublished(t *testing.T) {
	all := pages(t)
	sums := map[string]string{}
	for line := range strings.Lines(all["vendor/SHA256SUMS"]) {
		sum, name, found := strings.Cut(strings.TrimSpace(line), "  ")
		if !found {
			t.Fatalf("vendor/SHA256SUMS has the line %q", line)
		}
		sums["vendor/"+strings.TrimPrefix(name, "./")] = sum
	}
	for name, text := range all {
		if path.Dir(name) != "vendor" || path.Base(name) == "SHA256SUMS" || strings.HasSuffix(name, ".d.ts") { // types are ours
			continue
		}
		sum := sha256.Sum256([]byte(text))
		if got := hex.EncodeToString(sum[:]); sums[name] != got {
			t.Errorf("%s has the sum %s, SHA256SUMS says %q: vendor.sh brings it as published", name, got, sums[name])
		}
		delete(sums, name)
	}
	for name := range sums {
		t.Errorf("SHA256SUMS names %s, which is not there", name)
	}
}

// withoutComments leaves out JSDoc, whose import("…") are types.
func withoutComments(text string) string {
	return regexp.MustCompile(`(?s)/\*.*?\*/`).ReplaceAllString(text, "")
}
