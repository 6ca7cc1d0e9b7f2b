package dashboard

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"io/fs"
	"net/http"
	"path"
	"strings"
	"sync"
)

//go:embed assets
var embedded embed.FS

// asset is a file of the pages as it goes over the wire.
type asset struct {
	plain      []byte
	packed     func() []byte // compressed when it is first asked for: a server that shows no page pays nothing
	kind, etag string
}

// assets are the files of the pages by path.
var assets = sync.OnceValue(func() map[string]asset {
	all := map[string]asset{}
	err := fs.WalkDir(embedded, "assets", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		plain, err := embedded.ReadFile(name)
		if err != nil {
			return err
		}
		sum := sha256.Sum256(plain)
		all["/"+strings.TrimPrefix(name, "assets/")] = asset{plain: plain, packed: sync.OnceValue(func() []byte { return packed(plain) }), kind: kindOf(name), etag: `"` + hex.EncodeToString(sum[:12]) + `"`}
		return nil
	})
	if err != nil {
		panic(err) // what is in the program can be read
	}
	return all
})

// packed compresses, nil where that does not help.
func packed(plain []byte) []byte {
	var out bytes.Buffer
	w, err := gzip.NewWriterLevel(&out, gzip.BestCompression)
	if err == nil {
		_, err = w.Write(plain)
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil || out.Len() >= len(plain) {
		return nil
	}
	return out.Bytes()
}

// kinds are the media types of the pages. The machine's own table is not asked: it differs.
var kinds = map[string]string{".html": "text/html; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8",
	".svg": "image/svg+xml", ".json": "application/json", ".png": "image/png", ".woff2": "font/woff2"}

func kindOf(name string) string {
	if kind := kinds[path.Ext(name)]; kind != "" {
		return kind
	}
	return "text/plain; charset=utf-8"
}

// policy lets the pages load what this server has, and nothing else: no script in the page, none from elsewhere.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// Pages returns a handler for each file of the pages by path, / among them. They hold nothing of a run.
func Pages() map[string]http.Handler {
	pages := map[string]http.Handler{}
	for path, file := range assets() {
		pages[path] = http.HandlerFunc(file.serve)
	}
	pages["/"] = pages["/index.html"]
	return pages
}

func (a asset) serve(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, "a page can only be read", http.StatusMethodNotAllowed)
		return
	}
	h := w.Header()
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cache-Control", "no-cache")
	h.Set("Vary", "Accept-Encoding")
	h.Set("ETag", a.etag)
	if matches(r, a.etag) {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	h.Set("Content-Type", a.kind)
	body := a.plain
	if acceptsGzip(r) {
		if packed := a.packed(); packed != nil {
			h.Set("Content-Encoding", "gzip")
			body = packed
		}
	}
	write(w, r, body)
}

// matches reports whether the reader has what the tag names.
func matches(r *http.Request, etag string) bool {
	for tag := range strings.SplitSeq(r.Header.Get("If-None-Match"), ",") {
		if tag = strings.TrimSpace(tag); tag == "*" || strings.TrimPrefix(tag, "W/") == etag {
			return true
		}
	}
	return false
}

func acceptsGzip(r *http.Request) bool {
	for part := range strings.SplitSeq(r.Header.Get("Accept-Encoding"), ",") {
		name, quality, _ := strings.Cut(strings.TrimSpace(part), ";")
		if name == "gzip" {
			return strings.TrimSpace(quality) != "q=0"
		}
	}
	return false
}
