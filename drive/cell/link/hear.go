package link

import (
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	"github.com/headway-rl/headway/drive/cell"
)

// complaintsMost bounds how many refusals are said in a log.
const complaintsMost = 64

// Ear hears cells for a writer.
type Ear struct {
	// Heard is told of each event that is taken, also once more, by one goroutine at a time. It is set before the first word.
	Heard func(*cell.Event)
	// Deal answers those that ask for held-out prompts. It is set like Heard, and is nil for a writer that has none.
	Deal    func(*cell.Event) cell.Deal
	receive func(*cell.Event) error
	logf    func(format string, args ...any)

	mu   sync.Mutex
	said map[string]bool
}

// NewEar returns what hands the events of cells to a writer's Receive. A refusal is logged once a process.
func NewEar(receive func(*cell.Event) error, logf func(format string, args ...any)) *Ear {
	return &Ear{Heard: func(*cell.Event) {}, receive: receive, logf: logf, said: map[string]bool{}}
}

// Take takes a word that came by the subject of a cell, from one goroutine at a time, and returns the answer, nil for none.
func (e *Ear) Take(name string, word []byte) (answer []byte) {
	ev, err := cell.ParseWord(word)
	if err == nil && ev.Origin.Cell != name {
		err = fmt.Errorf("link: a word of the cell %s comes by the subject of another, %s", ev.Origin.Cell, name)
	}
	if err != nil {
		e.complain(name, 0, err)
		return refusal(&cell.Refusal{Why: err.Error()})
	}
	r, refused := errors.AsType[*cell.Refusal](e.receive(ev))
	if !refused { // it is taken, or the run has ended
		e.Heard(ev)
		if ev.Ask == nil || e.Deal == nil {
			return nil
		}
		d := e.Deal(ev)
		return written(reply{Deal: &d})
	}
	if r.Want == 0 {
		e.complain(name, ev.Origin.Incarnation, r)
	}
	return refusal(r)
}

// reply answers a word: a refusal, or a deal.
type reply struct {
	cell.Refusal
	Deal *cell.Deal `json:"deal,omitempty"`
}

func refusal(r *cell.Refusal) []byte { return written(reply{Refusal: *r}) }

func written(r reply) []byte {
	text, err := json.Marshal(r)
	if err != nil { // these are plain values
		return nil
	}
	return text
}

// complain logs why a process of a cell is refused, once.
func (e *Ear) complain(name string, incarnation int64, why error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	key := fmt.Sprintf("%.64s %d", name, incarnation)
	if e.said[key] || len(e.said) == complaintsMost {
		return
	}
	e.said[key] = true
	e.logf("a cell is refused (said once for each process): %v", why)
}
