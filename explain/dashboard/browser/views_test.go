package browser

import (
	"testing"
)

// views are the pages by the word in their address.
var views = []string{"overview", "timeline", "queue", "rollouts", "frontier", "schedules", "findings"}

// ready returns when a view has been drawn with data.
func (p *tab) ready(view string) {
	p.t.Helper()
	p.wait("document.querySelector('nav a[aria-current=page]')?.getAttribute('href').endsWith('" + view + "') && !document.querySelector('main .bare')")
	switch view {
	case "timeline", "frontier", "schedules":
		p.wait("document.documentElement.dataset.ready === '" + view + "'")
	}
}

// Every view is drawn, in both themes, on a wide and on a narrow screen, without an error, a request to another
// machine or anything wider than the screen.
func TestEveryViewIsDrawn(t *testing.T) {
	s := serve(t, "view", recorded(t), "--listen", "127.0.0.1:0")
	for _, l := range []look{wide, {1280, 900, true}, {390, 844, false}, {390, 844, true}} {
		t.Run(l.String(), func(t *testing.T) {
			p := openTab(t, l, s.url)
			for _, view := range views {
				p.do(clickOn("nav a[href$='" + view + "']"))
				p.ready(view)
				if over := eval[float64](p, "document.documentElement.scrollWidth - innerWidth"); over > 0 {
					t.Errorf("%s is %v px wider than the screen; the widest: %s", view, over, eval[string](p, widest))
				}
				p.picture(view + "-" + l.String())
			}
		})
	}
}

// widest names what reaches beyond the screen.
const widest = `(() => { const all = [...document.querySelectorAll("main *, header *")].filter(e => e.getBoundingClientRect().right > innerWidth + 1);
	return all.slice(0, 3).map(e => e.tagName + "." + e.className).join(", "); })()`
