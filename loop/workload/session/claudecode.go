package session

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
)

// scopeLimit is the largest identifier of a block in a scope of its own. Identifiers there count from 0 or 1.
const scopeLimit = 1 << 40

// agentDepth is how deep sub-agents may nest.
const agentDepth = 16

// claudeCode reads sessions. Identifiers of blocks are those of the session, so that every session gets a
// range of its own.
type claudeCode struct {
	record *Record
	base   uint64
}

// request is one call, or a sub-agent with its own.
type request struct {
	Type     string    `json:"type"`
	T        *float64  `json:"t"`
	Input    *tokens   `json:"in"`
	Output   *tokens   `json:"out"`
	APITime  *float64  `json:"api_time"`
	Hashes   numbers   `json:"hash_ids"`
	Agent    string    `json:"agent_id"`
	Requests []request `json:"requests"`
}

func (c *claudeCode) parse(text []byte) (Session, error) {
	var conversation struct {
		ID       string    `json:"id"`
		Block    *tokens   `json:"block_size"`
		Scope    string    `json:"hash_id_scope"`
		Requests []request `json:"requests"`
	}
	if err := decode(text, &conversation); err != nil {
		return Session{}, err
	}
	block, err := conversation.Block.between("block_size", 1)
	if err != nil {
		return Session{}, err
	}
	if block != c.record.block {
		return Session{}, &fault{"block_size", strconv.Itoa(block), fmt.Sprintf("%d, as in the file's first session", c.record.block)}
	}
	if scope := conversation.Scope; scope != "local" && scope != "global" {
		return Session{}, &fault{"hash_id_scope", strconv.Quote(scope), `"local" or "global"`}
	}
	one := scoped{block: block, local: conversation.Scope == "local", base: c.base}
	s, err := one.session(conversation.ID, conversation.Requests, "requests", 0, 0)
	if err != nil {
		return Session{}, err
	}
	if len(s.Calls)+len(s.Agents) == 0 {
		return Session{}, &fault{"requests", "empty", "at least one request"}
	}
	if c.record.local = one.local; one.local {
		c.base += one.most + 1
	}
	return s, nil
}

// scoped reads the requests of one session.
type scoped struct {
	block      int
	local      bool
	base, most uint64
}

// timed is a call and when it came and was answered, in seconds from the session's start.
type timed struct {
	at, end float64
	call    Call
}

// session reads the requests of a session, or of a sub-agent of one that began at parent.
func (c *scoped) session(id string, requests []request, path string, parent float64, depth int) (Session, error) {
	if depth > agentDepth {
		return Session{}, &fault{path, fmt.Sprintf("of a sub-agent %d deep", depth), fmt.Sprintf("at most %d", agentDepth)}
	}
	var calls []timed
	for i := range requests {
		r := &requests[i]
		if r.Type == "subagent" {
			continue
		}
		call, err := c.call(r, fmt.Sprintf("%s[%d]", path, i))
		if err != nil {
			return Session{}, err
		}
		calls = append(calls, call)
	}
	slices.SortStableFunc(calls, func(a, b timed) int { return cmp.Compare(a.at, b.at) })
	s, start := Session{ID: id}, parent
	if len(calls) > 0 {
		start = calls[0].at
		s.StartS = max(start-parent, 0)
		s.Calls = make([]Call, len(calls))
	}
	for i, one := range calls {
		s.Calls[i] = one.call
		if i > 0 {
			s.Calls[i].GapS = max(one.at-calls[i-1].end, 0)
		}
	}
	for i := range requests {
		r := &requests[i]
		if r.Type != "subagent" {
			continue
		}
		agent, err := c.session(id+"/"+cmp.Or(r.Agent, strconv.Itoa(len(s.Agents))), r.Requests, fmt.Sprintf("%s[%d].requests", path, i), start, depth+1)
		if err != nil {
			return Session{}, err
		}
		if len(agent.Calls)+len(agent.Agents) > 0 {
			s.Agents = append(s.Agents, agent)
		}
	}
	return s, nil
}

// call reads one request to a model.
func (c *scoped) call(r *request, path string) (t timed, err error) {
	if t.call, err = oneCall(r.Input, r.Output, path+".in", path+".out", 0); err != nil {
		return t, err
	}
	if t.at, err = seconds(r.T, path+".t", 1, true); err != nil {
		return t, err
	}
	took, err := seconds(r.APITime, path+".api_time", 1, false)
	if err != nil {
		return t, err
	}
	t.end, t.call.TookS = t.at+took, took
	if r.Hashes == nil {
		return t, nil
	}
	t.call.Blocks, err = wholeBlocks(r.Hashes, t.call.InputTokens, c.block, path+".hash_ids")
	if err != nil || !c.local {
		return t, err
	}
	for i, id := range t.call.Blocks {
		if id > scopeLimit || id > math.MaxUint64-c.base {
			return t, &fault{fmt.Sprintf("%s.hash_ids[%d]", path, i), strconv.FormatUint(id, 10), "a number of at most 2^40 in a local scope"}
		}
		c.most = max(c.most, id)
		t.call.Blocks[i] = c.base + id
	}
	return t, nil
}
