package calibrate

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/headway-rl/headway/internal/failure"
	measure "github.com/headway-rl/headway/predict/calibrate"
)

// Scrape says what pages are read of.
type Scrape struct {
	// From are addresses of servers, and files or directories of pages.
	From []string
	// For is how long servers are read, Every how often.
	For, Every time.Duration
	// KeyFile has their API key; empty for none.
	KeyFile string
	// Keep, if not nil, is written the pages of servers, to be read again.
	Keep io.Writer
	// Told is shown how far the reading of servers is, from 0 to 1.
	Told func(share float64, text string)
}

// scrapeTimeout bounds the reading of one page.
const scrapeTimeout = 10 * time.Second

// Pages reads pages and makes constants of them.
func Pages(ctx context.Context, s Scrape) (measure.Findings, error) {
	var pages []measure.Page
	var left []measure.Left
	leave := func(where, why string) {
		for i := range left {
			if left[i].Why == why {
				left[i].Count++
				return
			}
		}
		left = append(left, measure.Left{Why: why, Count: 1, First: where})
	}
	take := func(p measure.Page) { pages = append(pages, p) }
	var addresses []string
	for _, from := range s.From {
		if address, err := addressOf(strings.TrimSuffix(from, "/metrics")); err != nil {
			return measure.Findings{}, err
		} else if address != "" {
			addresses = append(addresses, address)
		} else if err := readPages(from, take, leave); err != nil {
			return measure.Findings{}, failure.Usage("give the address of a server, or files of its /metrics pages with a line of their time before each", "--metrics: %w", err)
		}
	}
	if s.Keep != nil && len(addresses) == 0 {
		return measure.Findings{}, failure.Usage("leave --keep out, or name a server by --metrics http://host:8000", "--keep keeps the pages of servers, and no --metrics is a URL")
	}
	if len(addresses) > 0 {
		if err := s.scrape(ctx, addresses, take, leave); err != nil {
			return measure.Findings{}, err
		}
	}
	found, err := measure.FromPages(pages, left)
	if err != nil {
		return found, failure.Run("read for longer, more often, or while a run samples: while sleep 5; do date +%s; curl -s HOST/metrics; done > pages.txt", "--metrics %s: %w", strings.Join(s.From, ", "), err)
	}
	return found, nil
}

// readPages reads a file of pages, or all files of a directory.
func readPages(path string, take func(measure.Page), left func(where, why string)) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if !info.IsDir() {
		return readPageFile(path, path, info, take, left)
	}
	return filepath.WalkDir(path, func(file string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		return readPageFile(file, path, info, take, left)
	})
}

// readPageFile reads one file. The pages of a directory are of one source; places name the file.
func readPageFile(file, source string, info fs.FileInfo, take func(measure.Page), left func(where, why string)) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	return measure.ReadPages(f, file, info.ModTime(), func(p measure.Page) {
		p.Source = source
		take(p)
	}, left)
}

// scrape reads servers for a time.
func (s Scrape) scrape(ctx context.Context, addresses []string, take func(measure.Page), left func(where, why string)) error {
	key := ""
	if s.KeyFile != "" {
		text, err := os.ReadFile(s.KeyFile)
		if err != nil {
			return failure.Usage("give --key-file a file with the server's API key", "%w", err)
		}
		key = strings.TrimSpace(string(text))
	}
	client := &http.Client{Timeout: scrapeTimeout}
	began := time.Now()
	ticker := time.NewTicker(s.Every)
	defer ticker.Stop()
	read := map[string]bool{}
	for {
		for _, address := range addresses {
			at := time.Now()
			text, err := scrapeOnce(ctx, client, address+"/metrics", key)
			if err == nil {
				var p measure.Page
				if p, err = measure.ParsePage(address, address+" at "+at.UTC().Format(time.TimeOnly), float64(at.UnixNano())/1e9, text); err == nil {
					take(p)
					read[address] = true
				}
			}
			if err != nil && !read[address] {
				return failure.Run("give the address of a vLLM, or of an SGLang with --enable-metrics, itself and not of a router", "%s/metrics: %w", address, err)
			}
			if err != nil {
				left(address, "a page that could not be read: "+firstLine(err))
			} else if s.Keep != nil {
				if _, err := fmt.Fprintf(s.Keep, "%d.%09d\n%s\n", at.Unix(), at.Nanosecond(), text); err != nil {
					return err
				}
			}
		}
		gone := time.Since(began)
		if gone >= s.For {
			return nil
		}
		s.Told(min(float64(gone)/float64(s.For), 1), fmt.Sprintf("reading /metrics, %s of %s", gone.Round(time.Second), s.For))
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return failure.Run("", "interrupted: nothing was written")
		}
	}
}

// scrapeOnce reads a page.
func scrapeOnce(ctx context.Context, client *http.Client, url, key string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	if key != "" {
		request.Header.Set("Authorization", "Bearer "+key)
	}
	answer, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(io.LimitReader(answer.Body, measure.PageMax+1))
	if err == nil && answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("status %d", answer.StatusCode)
	}
	return text, err
}
