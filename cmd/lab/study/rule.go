package study

import (
	"fmt"

	"github.com/headway-rl/headway/loop"
)

// Drop is queue-drop with capacity q batches, oldest first: the base of every comparison.
func Drop(q int) Rule {
	return Held(0, loop.SelectOldest, q)
}

// Held is queue-drop with capacity q batches, a hold of theta and an order of selection.
func Held(theta float64, order loop.Selection, q int) Rule {
	return Rule{fmt.Sprintf("drop q=%d %s hold %g", q, orderNames[order], theta), func(c *loop.Config, _ Cell) {
		c.QueueGroups, c.Select, c.Hold = q*c.BatchGroups, order, theta
	}}
}

var orderNames = map[loop.Selection]string{loop.SelectOldest: "oldest", loop.SelectNewest: "newest", loop.SelectOldestVersion: "oldest-version", loop.SelectFresh: "fresh"}

// pausing returns the rule with nothing opened while q batches wait in the queue.
func (r Rule) pausing(q float64) Rule {
	return r.with(fmt.Sprintf("pause %g", q), func(c *loop.Config, _ Cell) { c.PauseGroups = int(q * float64(c.BatchGroups)) })
}

// with returns the rule with a further change and name.
func (r Rule) with(name string, set func(c *loop.Config, cell Cell)) Rule {
	return Rule{r.Name + " " + name, func(c *loop.Config, cell Cell) {
		r.Set(c, cell)
		set(c, cell)
	}}
}
