package browser

import (
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/chromedp/chromedp"
)

// picturesBytesMax is the largest picture of README: a page with more takes long on a slow line.
const picturesBytesMax = 150 << 10

// TestPictures makes the pictures of README, light and dark: the overview of the default run, and the frontier on which it
// stands. HEADWAY_PICTURES names the folder; without it the test is passed over, because the run takes all processors.
func TestPictures(t *testing.T) {
	folder := os.Getenv("HEADWAY_PICTURES")
	if folder == "" {
		t.Skip("HEADWAY_PICTURES names no folder: make pictures")
	}
	made := t.TempDir()
	run := exec.Command(headway(t), "run", "--seed", "1", "--dir", made, "--name", "reverse", "--no-dashboard")
	run.Stdout, run.Stderr = io.Discard, os.Stderr
	if err := run.Run(); err != nil {
		t.Fatalf("the default run: %v", err)
	}
	s := serve(t, "view", filepath.Join(made, "reverse"), "--listen", "127.0.0.1:0")
	for _, theme := range []string{"light", "dark"} {
		p := openTab(t, look{1200, 656, theme == "dark"}, s.url)
		p.ready("overview")
		p.wait("document.querySelector('header [role=status]')?.innerText.includes('ended')")
		p.keep(filepath.Join(folder, "dashboard-"+theme+".png"))
		p.do(clickOn("nav a[href$='frontier']"))
		p.ready("frontier")
		p.keep(filepath.Join(folder, "frontier-"+theme+".png"))
	}
}

// keep writes what is seen to a file.
func (p *tab) keep(path string) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	png, err := chromedp.Run(ctx, chromedp.CaptureScreenshot())
	if err == nil {
		err = os.WriteFile(path, png, 0o644)
	}
	if err != nil {
		p.t.Fatalf("the picture %s: %v", path, err)
	}
	if len(png) > picturesBytesMax {
		p.t.Errorf("the picture %s has %d bytes, want at most %d", path, len(png), picturesBytesMax)
	}
}
