package browser

import (
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
)

// set gives a field a value as a user's typing does.
func (p *tab) set(selector, value string) {
	p.t.Helper()
	eval[bool](p, fmt.Sprintf("(f => { f.value = %q; f.dispatchEvent(new Event('input', {bubbles: true})); f.dispatchEvent(new Event('change', {bubbles: true})); return true; })(document.querySelector(%q))", value, selector))
}

func (p *tab) text(selector string) string {
	p.t.Helper()
	return eval[string](p, fmt.Sprintf("document.querySelector(%q).innerText", selector))
}

// Keys go to every view, and to the other theme.
func TestPagesByKeys(t *testing.T) {
	s := serve(t, "view", recorded(t), "--listen", "127.0.0.1:0")
	p := openTab(t, wide, s.url)
	p.ready("overview")
	for i, view := range views {
		p.keys(fmt.Sprint(i + 1))
		p.ready(view)
	}
	ground := "getComputedStyle(document.documentElement).backgroundColor"
	before := eval[string](p, ground)
	p.keys("t")
	p.wait(fmt.Sprintf("%s !== %q", ground, before))
	p.keys("?")
	p.wait("document.querySelector('dialog').open")
}

// The theory answers what is asked of it, beside the run, and the run comes back.
func TestFrontierAnswers(t *testing.T) {
	s := serve(t, "view", recorded(t), "--listen", "127.0.0.1:0")
	p := openTab(t, wide, s.url+"#/frontier")
	p.ready("frontier")
	own := p.text(".frontier .figures")
	p.set("#input-queue-factor", "6")
	p.wait(fmt.Sprintf("document.querySelector('.frontier .figures').innerText !== %q", own))
	p.wait("document.querySelector('.command input').value.includes('--queue-factor 6')")
	p.waitText("against the run")
	p.picture("frontier-moved")
	p.do(clickOn(".frontier header button"))
	p.wait(fmt.Sprintf("document.querySelector('.frontier .figures').innerText === %q", own))
	p.set("#input-acceptance", "7")
	p.waitText("acceptance")
	p.wait("document.querySelector('[role=alert]')")
	p.allowed = func(problem string) bool { return strings.Contains(problem, "400 (Bad Request)") }
}

// Every topology is drawn, and longer train steps make each slower.
func TestSchedulesAnswer(t *testing.T) {
	s := serve(t, "view", recorded(t), "--listen", "127.0.0.1:0")
	p := openTab(t, wide, s.url+"#/schedules")
	p.ready("schedules")
	p.wait("document.querySelectorAll('.schedule-drawing svg rect').length > 20")
	own := p.text(".schedules tbody")
	p.set("#input-train-time", eval[string](p, "String(2 * document.querySelector('#input-train-time').value)"))
	p.wait(fmt.Sprintf("document.querySelector('.schedules tbody').innerText !== %q", own))
	if rows := eval[int](p, "document.querySelectorAll('.schedules tbody tr').length"); rows != 5 {
		t.Errorf("%d schedules, want 5", rows)
	}
	p.wait("[...document.querySelectorAll('.schedules tbody tr')].every(row => /^[0-9.]*[1-9][0-9.]*\\s(ms|s|min)/.test(row.cells[1].innerText))")
}

// The printed link opens the pages, and its token leaves the address. Without it they show nothing and ask for it.
func TestTokenOfTheLink(t *testing.T) {
	s := serve(t, "view", recorded(t), "--listen", "127.0.0.1:0")
	p := openTab(t, wide, s.url+"#/queue")
	p.ready("queue")
	p.wait("!location.href.includes('token')")
	p.do(chromedp.Reload())
	p.ready("queue")
	link := linked(s.url + "#/timeline")
	at, err := url.Parse(s.url)
	if err != nil {
		t.Fatal(err)
	}
	tokens.Delete(at.Host)
	stranger := openTab(t, wide, s.url)
	stranger.allowed = func(problem string) bool { return strings.Contains(problem, "401") }
	stranger.wait("document.querySelector('.ask input[type=password]')")
	if text := stranger.text("body"); strings.Contains(text, "train steps") || !strings.Contains(text, "link that headway run") {
		t.Errorf("without a token: %s", text)
	}
	stranger.do(chromedp.Navigate(link))
	stranger.ready("timeline")
}

// When the server is gone the pages say so, keep what they know, and fetch the rest when it is back.
func TestServerGoesAway(t *testing.T) {
	token := filepath.Join(recorded(t), "dashboard.token")
	if err := os.WriteFile(token, []byte(strings.Repeat("A", 26)), 0o600); err != nil { // as a run that is shown has one
		t.Fatal(err)
	}
	s := serve(t, "view", recorded(t), "--listen", "127.0.0.1:0")
	p := openTab(t, wide, s.url+"#/timeline")
	p.allowed = func(problem string) bool { return strings.Contains(problem, "net::ERR_") } // refused, or reset as it died
	p.ready("timeline")
	s.stop()
	eval[bool](p, canvasFocus+"; true")
	p.keys("+", "+", "+", "+", "+", "+", "+", "+", "+", "+", "+", "+", "+", "+", "+")
	p.wait("document.querySelector('.timeline-error')")
	p.picture("timeline-server-gone")
	serve(t, "view", recorded(t), "--listen", strings.TrimSuffix(strings.TrimPrefix(s.url, "http://"), "/"))
	p.wait("!document.querySelector('.timeline-error')")
	p.keys("3")
	p.ready("queue")
}
