package browser

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/heapprofiler"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/cdproto/tracing"
	"github.com/chromedp/chromedp"
)

// What docs/dashboard.md says of speed and memory is measured here, with HEADWAY_LONG=1 and -v. The figures are
// logged: a machine under load would fail a test that judged them, so that only the shape is held.

// largeDocument is simulated for a run of a million events and more.
const largeDocument = `
seed: 1
rollout:
  concurrency: 256
  group_size: 8
train: {batch: 256}
queue: {policy: drop, factor: 1}
modelled:
  decode_tokens_per_s: 50
  length: {kind: lognormal, mean_tokens: 1400, tailness: 50, cap_tokens: 8080}
  train: {utilization: 1.2}
steps: {warmup: 100, measured: 3200}
`

func long(t *testing.T) {
	t.Helper()
	if os.Getenv("HEADWAY_LONG") == "" {
		t.Skip("takes minutes: HEADWAY_LONG=1 runs it")
	}
}

// largeTrace is the trace of that run, simulated once, and its events.
var largeTrace = sync.OnceValues(func() (string, error) {
	path, err := program()
	if err != nil {
		return "", err
	}
	document, trace := filepath.Join(theDirectory, "large.yaml"), filepath.Join(theDirectory, "large.ndjson")
	if err := os.WriteFile(document, []byte(largeDocument), 0o644); err != nil {
		return "", err
	}
	simulate := exec.Command(path, "simulate", document, "--accept-unsettled", "--trace", trace)
	simulate.Stderr = os.Stderr
	return trace, simulate.Run()
})

func large(t *testing.T) string {
	t.Helper()
	trace, err := largeTrace()
	if err != nil {
		t.Fatalf("simulating a large run: %v", err)
	}
	return trace
}

// readWhole opens a tab on a server and returns when the server has read its run.
func readWhole(t *testing.T, s *server) *tab {
	t.Helper()
	p := openTab(t, wide, s.url)
	p.ready("overview")
	p.wait("document.querySelector('header [role=status]')?.innerText.includes('ended')")
	return p
}

// seenAfter opens a page in a new tab with nothing cached, and returns the milliseconds until a condition held.
func seenAfter(t *testing.T, address, condition string) float64 {
	t.Helper()
	p := openTab(t, wide, "about:blank")
	p.allowed = func(string) bool { return true } // the tab began elsewhere
	p.call(func(ctx context.Context, target *chromedp.Target) error {
		_, err := cdpCall(ctx, target, network.SetCacheDisabled, network.SetCacheDisabledParams{CacheDisabled: true})
		if err == nil {
			_, err = cdpCall(ctx, target, page.AddScriptToEvaluateOnNewDocument, page.AddScriptToEvaluateOnNewDocumentParams{
				Source: "(() => { const look = () => { if (" + condition + ") window.seenAfter = performance.now(); else requestAnimationFrame(look); }; requestAnimationFrame(look); })()"})
		}
		return err
	})
	p.do(chromedp.Navigate(linked(address)))
	p.wait("window.seenAfter")
	return eval[float64](p, "window.seenAfter")
}

func TestLargeRunIsSeenSoon(t *testing.T) {
	long(t)
	s := serve(t, "view", large(t), "--listen", "127.0.0.1:0")
	const overview = "document.querySelector('main .figure b')?.innerText.match(/[0-9]/)"
	const timeline = "document.documentElement?.dataset.ready === 'timeline'"
	t.Logf("while the run is still being read: overview after %.0f ms", seenAfter(t, s.url, overview))
	readWhole(t, s)
	for _, v := range []struct{ name, address, condition string }{{"overview", s.url, overview}, {"timeline", s.url + "#/timeline", timeline}} {
		var took []float64
		for range 5 {
			took = append(took, seenAfter(t, v.address, v.condition))
		}
		slices.Sort(took)
		t.Logf("%s, nothing cached: median %.0f ms, most %.0f ms of %d", v.name, took[2], took[4], len(took))
	}
}

// traceEvent is what is read of a browser's trace.
type traceEvent struct {
	Name    string  `json:"name"`
	Phase   string  `json:"ph"`
	Process int     `json:"pid"`
	Thread  int     `json:"tid"`
	At      float64 `json:"ts"`   // µs
	Lasts   float64 `json:"dur"`  // µs
	Works   float64 `json:"tdur"` // µs of the processor's time: what other programs take is not in it
}

// traced returns what the browser traced while something was done.
func (p *tab) traced(do func()) []traceEvent {
	p.t.Helper()
	var mu sync.Mutex
	var events []traceEvent
	done := make(chan struct{})
	ctx, stop := context.WithCancel(p.ctx)
	defer stop()
	err := chromedp.Listen(ctx, func(event any) {
		switch e := event.(type) {
		case *tracing.EventDataCollected:
			mu.Lock()
			defer mu.Unlock()
			for _, raw := range e.Value {
				var one traceEvent
				if json.Unmarshal(raw, &one) == nil {
					events = append(events, one)
				}
			}
		case *tracing.EventTracingComplete:
			close(done)
		}
	})
	if err != nil {
		p.t.Fatal(err)
	}
	p.call(func(ctx context.Context, target *chromedp.Target) error {
		_, err := cdpCall(ctx, target, tracing.Start, tracing.StartParams{TransferMode: tracing.StartTransferModeReportEvents,
			TraceConfig: &tracing.TraceConfig{IncludedCategories: []string{"devtools.timeline", "disabled-by-default-devtools.timeline"}}})
		return err
	})
	do()
	p.call(func(ctx context.Context, target *chromedp.Target) error {
		_, err := cdpCall(ctx, target, tracing.End, struct{}{})
		return err
	})
	select {
	case <-done:
	case <-time.After(patience):
		p.t.Fatal("the browser did not end its trace")
	}
	mu.Lock()
	defer mu.Unlock()
	return events
}

// framesOf returns the main thread's work between one animation frame and the next, in milliseconds, of the renderer
// that drew most frames.
func framesOf(events []traceEvent) []float64 {
	type thread struct{ process, thread int }
	starts := map[thread][]float64{}
	for _, e := range events {
		if e.Name == "FireAnimationFrame" {
			at := thread{e.Process, e.Thread}
			starts[at] = append(starts[at], e.At)
		}
	}
	var main thread
	for at, all := range starts {
		if len(all) > len(starts[main]) {
			main = at
		}
	}
	frames := starts[main]
	slices.Sort(frames)
	if len(frames) < 2 {
		return nil
	}
	work := make([]float64, len(frames)-1)
	for _, e := range events {
		if (thread{e.Process, e.Thread}) != main || e.Phase != "X" || e.Name != "RunTask" {
			continue
		}
		// A task that holds a frame belongs to it from its beginning.
		i, _ := slices.BinarySearch(frames, e.At+e.Lasts)
		if i > 0 && i-1 < len(work) {
			work[i-1] += e.Works / 1000
		}
	}
	return work
}

func TestPanningALargeTimeline(t *testing.T) {
	long(t)
	s := serve(t, "view", large(t), "--listen", "127.0.0.1:0")
	p := readWhole(t, s)
	p.keys("2")
	p.ready("timeline")
	box := eval[[]float64](p, "(r => [r.left, r.top, r.width, r.height])(document.querySelector('.timeline-body canvas').getBoundingClientRect())")
	x, y := box[0]+box[2]/2, box[1]+box[3]/2
	wheel := func(dy float64) {
		p.mouse(input.DispatchMouseEventTypeMouseWheel, x, y, func(m *input.DispatchMouseEventParams) { m.DeltaX, m.DeltaY = 0.01, dy })
	}
	for _, zoom := range []struct {
		name  string
		times int
	}{{"a tenth of the run", 6}, {"a hundredth", 6}, {"a thousandth", 6}} {
		before := p.hash()
		for range zoom.times {
			wheel(-240)
		}
		p.settled(before)
		var frames []float64
		events := p.traced(func() {
			for range 4 {
				p.drag(x+300, y, x-300, y, 0)
				p.drag(x-300, y, x+300, y, 0)
			}
		})
		frames = framesOf(events)
		slices.Sort(frames)
		if len(frames) < 20 {
			t.Fatalf("only %d frames were traced in %d events", len(frames), len(events))
		}
		over := 0
		for _, ms := range frames {
			if ms > 16 {
				over++
			}
		}
		from, to := p.span()
		t.Logf("%s (%.0f s in view): main-thread work a frame median %.1f ms, p95 %.1f ms, most %.1f ms; %d of %d frames above 16 ms",
			zoom.name, to-from, frames[len(frames)/2], frames[len(frames)*95/100], frames[len(frames)-1], over, len(frames))
	}
}

// heap returns what the page holds once its garbage is collected, in bytes.
func (p *tab) heap() float64 {
	p.t.Helper()
	var used float64
	p.call(func(ctx context.Context, target *chromedp.Target) error {
		if _, err := cdpCall(ctx, target, heapprofiler.CollectGarbage, struct{}{}); err != nil {
			return err
		}
		usage, err := cdpCall(ctx, target, runtime.GetHeapUsage, struct{}{})
		used = usage.UsedSize + usage.BackingStorageSize
		return err
	})
	return used
}

// An hour of a stream of 1,000 events a second, as fast as it can be read: the timeline follows it, and at every
// tenth of it the page's heap and the program's memory are read.
func TestMemoryOverAnHourOfAStream(t *testing.T) {
	long(t)
	trace, err := os.Open(large(t))
	if err != nil {
		t.Fatal(err)
	}
	defer trace.Close()
	growing, err := os.Create(filepath.Join(t.TempDir(), "growing.ndjson"))
	if err != nil {
		t.Fatal(err)
	}
	defer growing.Close()
	lines := bufio.NewScanner(trace)
	lines.Buffer(nil, 1<<20)
	copyTo := func(event int) bool {
		for lines.Scan() {
			var line struct {
				N    int    `json:"n"`
				Note string `json:"note"`
			}
			if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
				t.Fatal(err)
			}
			if line.Note == "end" {
				return false
			}
			if _, err := growing.Write(append(bytes.Clone(lines.Bytes()), '\n')); err != nil {
				t.Fatal(err)
			}
			if line.N >= event {
				return true
			}
		}
		return false
	}
	copyTo(20_000)
	s := serve(t, "view", growing.Name(), "--listen", "127.0.0.1:0")
	p := openTab(t, wide, s.url+"#/timeline")
	p.ready("timeline")
	eval[bool](p, canvasFocus+"; true")
	p.keys("l")
	for event := 100_000; copyTo(event); event += 100_000 {
		said := eval[string](p, "document.querySelector('.facts').innerText")
		p.wait(fmt.Sprintf("document.querySelector('.facts').innerText !== %q", said))
		t.Logf("%d events: the page holds %.1f MB, the program %s", event, p.heap()/1e6, residentOf(s.command.Process.Pid))
	}
}

// residentOf is the memory of a process as the kernel says it.
func residentOf(pid int) string {
	status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	for line := range bytes.Lines(status) {
		if rest, is := bytes.CutPrefix(line, []byte("VmRSS:")); is {
			return string(bytes.TrimSpace(rest))
		}
	}
	return "(not known here)"
}
