package checker

import (
	"bytes"
	"slices"
	"strings"
)

// repliesLast is for how long a plane keeps the reply of a call, for when it is sent again.
const repliesLast = 600 * second

// keyless are the calls that need no key: their arguments say that they are sent again.
var keyless = []string{"/api/v1/weights", "/api/v1/batches/lease", "/api/v1/groups", "/api/v1/trainers", "/api/v1/receivers", "/api/v1/transfer"}

// reply is an answer of status 200 to a call with a key.
type reply struct {
	line    int
	program int // the line of its plane's last start
	began   int64
	text    []byte
}

// checkReplies reports calls that were sent again under their key, to one plane between two starts of it, and got
// another reply. A twin of a cell knows none of the replies of the process before it.
func (c *check) checkReplies() {
	started, first := map[string]int{}, map[string]reply{}
	for i := range c.lines {
		l := &c.lines[i]
		if l.Kind == "start" {
			started[l.Host] = i
		}
		x := l.Exchange
		if x == nil || x.Key == "" || !strings.HasPrefix(x.Path, "/api/v1/") || x.Lost == nil && (x.Status != 200 || x.Error != "") ||
			strings.HasSuffix(x.Path, "/touch") || strings.HasSuffix(x.Path, "/renew") || // they renew again
			slices.ContainsFunc(keyless, func(path string) bool { return strings.HasPrefix(x.Path, path) }) {
			continue
		}
		if x.BeganNS < c.lines[started[x.To]].AtNS {
			continue // the program before may have answered it
		}
		r := reply{line: i, program: started[x.To], began: x.BeganNS, text: x.Response}
		if x.Lost != nil {
			r.text = x.Lost
		}
		call := x.To + " " + x.Method + " " + x.Path + " " + x.Key
		was, again := first[call]
		if !again {
			first[call] = r
			continue
		}
		if was.program == r.program && l.AtNS-was.began < repliesLast && !bytes.Equal(was.text, r.text) && !c.twinBetween(x.To, was.began, l.AtNS) {
			c.fail(RuleReply, i, "%s asked %s of %s again under one key, and got the reply %.200q instead of %.200q, which line %d got", l.Host, x.Path, x.To, r.text, was.text, was.line)
		}
	}
}
