package browser

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp/kb"
)

// openTimeline opens the timeline of the recorded run, drawn whole.
func openTimeline(t *testing.T, l look, more string) *tab {
	t.Helper()
	s := serve(t, "view", recorded(t), "--listen", "127.0.0.1:0")
	p := openTab(t, l, s.url+"#/timeline"+more)
	p.ready("timeline")
	return p
}

const canvasFocus = "document.querySelector('.timeline-body canvas').focus()"

// span returns the stretch of time that the address says is in view, in seconds.
func (p *tab) span() (from, to float64) {
	p.t.Helper()
	_, query, _ := strings.Cut(eval[string](p, "location.hash"), "?")
	for _, part := range strings.Split(query, "&") {
		key, value, _ := strings.Cut(part, "=")
		n, _ := strconv.ParseFloat(value, 64)
		switch key {
		case "from":
			from = n
		case "to":
			to = n
		}
	}
	return from, to
}

// settled returns when the address says another stretch than before.
func (p *tab) settled(before string) {
	p.t.Helper()
	p.wait(fmt.Sprintf("location.hash !== %q", before))
}

func (p *tab) hash() string { return eval[string](p, "location.hash") }

// By keys alone: closer, later, from span to span, to the group in the rollout reader, and back to the whole.
func TestTimelineByKeys(t *testing.T) {
	p := openTimeline(t, wide, "")
	eval[bool](p, canvasFocus+"; true")
	whole := p.hash()
	p.keys("+", "+", "+", "+", "+", "+")
	p.settled(whole)
	from, to := p.span()
	if to <= from {
		t.Fatalf("zoomed in to %v to %v s", from, to)
	}
	before := p.hash()
	p.keys("d")
	p.settled(before)
	if later, _ := p.span(); later <= from {
		t.Errorf("d moves from %v to %v s: not later", from, later)
	}
	p.keys(kb.ArrowDown, kb.ArrowDown) // the weights of the engine, then its first slot
	p.wait("document.querySelector('#timeline-read').innerText.includes('slot')")
	first := eval[string](p, "document.querySelector('#timeline-read').innerText")
	p.keys(".")
	p.wait(fmt.Sprintf("document.querySelector('#timeline-read').innerText !== %q", first))
	p.picture("timeline-focus")
	p.keys(kb.Enter)
	p.wait("location.hash.startsWith('#/rollouts?group=')")
	p.keys("2")
	p.ready("timeline")
	eval[bool](p, canvasFocus+"; true")
	p.keys("f")
	p.wait("location.hash === '#/timeline'")
}

// Wheel, drag and box; folding, colours, and a jump to a step.
func TestTimelineByMouse(t *testing.T) {
	p := openTimeline(t, wide, "")
	box := eval[[]float64](p, "(r => [r.left, r.top, r.width, r.height])(document.querySelector('.timeline-body canvas').getBoundingClientRect())")
	x, y := box[0]+box[2]/2, box[1]+box[3]/3
	before := p.hash()
	p.mouse(input.DispatchMouseEventTypeMouseWheel, x, y, func(m *input.DispatchMouseEventParams) {
		m.DeltaX, m.DeltaY = 0.01, -600 /* a zero is not sent, and refused */
	})
	p.settled(before)
	from, to := p.span()
	before = p.hash()
	p.drag(x, y, x+200, y, 0)
	p.settled(before)
	if earlier, _ := p.span(); earlier >= from {
		t.Errorf("dragging to the right moves from %v to %v s: not earlier", from, earlier)
	}
	before = p.hash()
	const shift = 8
	p.drag(x-100, y, x+100, y, shift)
	p.settled(before)
	if a, b := p.span(); b-a >= (to-from)/2 {
		t.Errorf("a box of 200 px of %v s shows %v s", to-from, b-a)
	}
	p.picture("timeline-zoomed")
	p.clickRollout(box)
	p.do(clickOn("button[aria-expanded=false]"))
	p.wait("document.querySelectorAll('.timeline-gutter .name').length > 20")
	for _, by := range []string{"staleness", "kind"} {
		eval[bool](p, fmt.Sprintf("(s => { s.value = %q; s.dispatchEvent(new Event('change', {bubbles: true})); return true; })(document.querySelector('.timeline select'))", by))
		p.picture("timeline-by-" + by)
	}
	p.wait("document.querySelectorAll('.timeline-legend .key').length === 10")
	before = p.hash()
	eval[bool](p, "(i => { i.value = 20; i.dispatchEvent(new Event('input', {bubbles: true})); return true; })(document.querySelector('.timeline-tools input'))")
	p.wait("!document.querySelector('.timeline-tools form button').disabled")
	p.do(clickOn(".timeline-tools form button"))
	p.settled(before)
	p.wait("document.querySelector('#timeline-says').innerText.includes('steps')")
	p.do(clickOn(".timeline-steps summary"))
	p.wait("[...document.querySelectorAll('.timeline-steps tbody tr')].some(row => row.cells[0].innerText === '20')")
	p.picture("timeline-step-20")
}

// clickRollout clicks along a row of the folded engine until a rollout is read: a slot of a bounded run may wait for room anywhere.
func (p *tab) clickRollout(box []float64) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	const columns = 61
	for i := 0; ctx.Err() == nil; i++ {
		p.click(box[0]+box[2]*(float64(i*7%columns)+0.5)/columns, box[1]+box[3]/3)
		if eval[bool](p, "document.querySelector('#timeline-read button')?.innerText.startsWith('Read group') === true") {
			return
		}
	}
	p.t.Fatalf("no click along a row reads a rollout; the last reads: %s", eval[string](p, "document.querySelector('#timeline-read').innerText"))
}

// drag moves from one point to another with the button down.
func (p *tab) drag(x0, y0, x1, y1 float64, modifiers int64) {
	p.t.Helper()
	held := func(m *input.DispatchMouseEventParams) { m.Modifiers = modifiers; m.Buttons = 1 }
	p.mouse(input.DispatchMouseEventTypeMousePressed, x0, y0, held)
	const steps = 8
	for i := 1; i <= steps; i++ {
		p.mouse(input.DispatchMouseEventTypeMouseMoved, x0+(x1-x0)*float64(i)/steps, y0+(y1-y0)*float64(i)/steps, held, func(m *input.DispatchMouseEventParams) { m.Button = input.MouseButtonLeft })
	}
	p.mouse(input.DispatchMouseEventTypeMouseReleased, x1, y1, func(m *input.DispatchMouseEventParams) { m.Modifiers = modifiers })
}
