package browser

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// patience bounds every wait: it is for machines under load, and no test says that something is fast.
const patience = 2 * time.Minute

// programs are the names under which systems install Chromium.
var programs = []string{"chromium", "chromium-browser", "google-chrome", "google-chrome-stable"}

// findBrowser returns the browser's program. A test is passed over where there is none.
func findBrowser(t *testing.T) string {
	t.Helper()
	if named := os.Getenv("HEADWAY_BROWSER"); named != "" {
		path, err := exec.LookPath(named)
		if err != nil {
			t.Fatalf("HEADWAY_BROWSER: %v", err)
		}
		return path
	}
	for _, name := range programs {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	t.Skipf("no browser on the PATH (%s): install your system's package chromium, or name one in HEADWAY_BROWSER", strings.Join(programs, ", "))
	return ""
}

// theBrowser is one process for all tests, started by the first.
var theBrowser struct {
	once sync.Once
	ctx  context.Context
	stop context.CancelFunc
	err  error
}

// theDirectory is where the program is built and runs are recorded; the tests' main removes it.
var theDirectory string

func TestMain(m *testing.M) {
	directory, err := os.MkdirTemp("", "headway-browser-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	theDirectory = directory
	code := m.Run()
	if theBrowser.stop != nil {
		theBrowser.stop()
	}
	_ = os.RemoveAll(directory)
	os.Exit(code)
}

// startBrowser returns the context of the browser.
func startBrowser(t *testing.T) context.Context {
	t.Helper()
	path := findBrowser(t)
	theBrowser.once.Do(func() {
		options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.WSURLReadTimeout(patience),
			chromedp.Flag("force-device-scale-factor", "1"), chromedp.Flag("enable-precise-memory-info", true), chromedp.Flag("js-flags", "--expose-gc"))
		if os.Geteuid() == 0 {
			options = append(options, chromedp.NoSandbox) // Chromium's own sandbox does not start as root
		}
		allocator, stopAllocator := chromedp.NewExecAllocator(context.Background(), options...)
		ctx, stop := chromedp.NewContext(allocator)
		theBrowser.ctx, theBrowser.err = ctx, chromedp.Do(ctx)
		theBrowser.stop = func() { stop(); stopAllocator() }
	})
	if theBrowser.err != nil {
		t.Fatalf("the browser %s does not start: %v", path, theBrowser.err)
	}
	return theBrowser.ctx
}

// look is how a page is seen.
type look struct {
	width, height int64
	dark          bool
}

var wide = look{1280, 900, false}

func (l look) String() string {
	theme := "light"
	if l.dark {
		theme = "dark"
	}
	return fmt.Sprintf("%d-%s", l.width, theme)
}

// tab is one page. At the end of its test it must have logged no error, and asked no other machine.
type tab struct {
	t    *testing.T
	ctx  context.Context
	host string
	mu   sync.Mutex
	// problems are what the console said, and requests to others; allowed says which are meant to be there.
	problems []string
	allowed  func(problem string) bool
}

// openTab opens a page and waits until its view has been drawn.
func openTab(t *testing.T, l look, address string) *tab {
	t.Helper()
	ctx, cancel := chromedp.NewContext(startBrowser(t))
	p := &tab{t: t, ctx: ctx, allowed: func(string) bool { return false }}
	to, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	p.host = to.Host
	t.Cleanup(func() {
		cancel()
		p.mu.Lock()
		defer p.mu.Unlock()
		for _, problem := range p.problems {
			if !p.allowed(problem) {
				t.Errorf("%s: %s", address, problem)
			}
		}
	})
	if err := chromedp.Listen(ctx, p.hear); err != nil {
		t.Fatal(err)
	}
	p.call(func(ctx context.Context, target *chromedp.Target) error {
		_, err := cdpCall(ctx, target, network.Enable, network.EnableParams{})
		if err == nil {
			_, err = cdpCall(ctx, target, log.Enable, struct{}{})
		}
		return err
	})
	p.see(l)
	p.do(chromedp.Navigate(linked(address)))
	return p
}

// hear keeps what must not happen.
func (p *tab) hear(event any) {
	problem := ""
	switch e := event.(type) {
	case *runtime.EventExceptionThrown:
		problem = "exception: " + e.ExceptionDetails.Text
		if thrown := e.ExceptionDetails.Exception; thrown != nil {
			problem += " " + thrown.Description
		}
	case *runtime.EventConsoleAPICalled:
		if e.Type == runtime.ConsoleAPICalledTypeError || e.Type == runtime.ConsoleAPICalledTypeWarning || e.Type == runtime.ConsoleAPICalledTypeAssert {
			problem = "console: " + string(e.Type)
			for _, argument := range e.Args {
				problem += " " + string(argument.Value) + argument.Description
			}
		}
	case *log.EventEntryAdded:
		if e.Entry.Level == log.EntryLevelError || e.Entry.Level == log.EntryLevelWarning {
			problem = "log: " + e.Entry.Text + " " + e.Entry.URL
		}
	case *network.EventRequestWillBeSent:
		to, err := url.Parse(e.Request.URL)
		if err != nil || (to.Scheme != "data" && to.Scheme != "blob" && to.Host != p.host) {
			problem = "a request to another machine: " + e.Request.URL
		}
	}
	if problem != "" {
		p.mu.Lock()
		p.problems = append(p.problems, problem)
		p.mu.Unlock()
	}
}

// see sets size and theme.
func (p *tab) see(l look) {
	p.t.Helper()
	p.do(chromedp.EmulateViewport(l.width, l.height))
	theme := "light"
	if l.dark {
		theme = "dark"
	}
	p.call(func(ctx context.Context, target *chromedp.Target) error {
		_, err := cdpCall(ctx, target, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
			Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: theme}}})
		return err
	})
}

func (p *tab) do(actions ...chromedp.Action[chromedp.Void]) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	if err := chromedp.Do(ctx, actions...); err != nil {
		p.t.Fatal(err)
	}
}

func (p *tab) call(f func(context.Context, *chromedp.Target) error) {
	p.t.Helper()
	p.do(chromedp.Func(f))
}

// eval returns what an expression is in the page; a promise's value.
func eval[T any](p *tab, expression string) T {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	v, err := chromedp.Run(ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
	if err != nil {
		p.t.Fatalf("%s: %v", expression, err)
	}
	return v
}

// wait returns when an expression holds in the page.
func (p *tab) wait(expression string) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	if _, err := chromedp.Run(ctx, chromedp.Poll[bool]("!!("+expression+")", chromedp.WithPollingTimeout(patience))); err != nil {
		text, _ := chromedp.Run(p.ctx, chromedp.Evaluate[string]("location.href + '\\n' + document.body.innerText.slice(0, 1500)"))
		p.t.Fatalf("waiting for %s: %v; the page says:\n%s", expression, err, text)
	}
}

// waitText returns when the page says a text.
func (p *tab) waitText(text string) {
	p.t.Helper()
	p.wait(fmt.Sprintf("document.body.innerText.includes(%q)", text))
}

// keys presses keys on what has the focus.
func (p *tab) keys(keys ...string) {
	p.t.Helper()
	for _, key := range keys {
		p.do(chromedp.KeyEvent(key))
	}
}

func (p *tab) mouse(kind input.DispatchMouseEventType, x, y float64, more ...func(*input.DispatchMouseEventParams)) {
	p.t.Helper()
	params := input.DispatchMouseEventParams{Type: kind, X: x, Y: y}
	if kind == input.DispatchMouseEventTypeMousePressed || kind == input.DispatchMouseEventTypeMouseReleased {
		params.Button, params.ClickCount = input.MouseButtonLeft, 1
	}
	for _, change := range more {
		change(&params)
	}
	p.call(func(ctx context.Context, target *chromedp.Target) error {
		_, err := cdpCall(ctx, target, input.DispatchMouseEvent, params)
		return err
	})
}

// click presses and lets go at a point.
func (p *tab) click(x, y float64) {
	p.t.Helper()
	p.mouse(input.DispatchMouseEventTypeMousePressed, x, y)
	p.mouse(input.DispatchMouseEventTypeMouseReleased, x, y)
}

// picture keeps what is seen, where somebody wants to look at it.
func (p *tab) picture(name string) {
	p.t.Helper()
	directory := os.Getenv("HEADWAY_SCREENSHOTS")
	if directory == "" {
		return
	}
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	png, err := chromedp.Run(ctx, chromedp.FullScreenshot(100))
	if err == nil {
		err = os.WriteFile(filepath.Join(directory, name+".png"), png, 0o644)
	}
	if err != nil {
		p.t.Errorf("the picture %s: %v", name, err)
	}
}

// clickOn clicks on the first element that a selector finds.
func clickOn(selector string) chromedp.Action[chromedp.Void] {
	return chromedp.Click(chromedp.CSS(selector))
}
