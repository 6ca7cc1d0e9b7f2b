package sim

import "github.com/headway-rl/headway/loop"

// contexts are what an engine's cache holds under Agents.CacheTokens: the contexts of the rollouts in its slots. A prompt
// counts once for all rollouts of its group. A rollout in a tool, or interrupted, keeps its context until others need the
// room: the one that left longest ago loses its own. What old weights computed is found no more.
type contexts struct {
	held           int64 // tokens
	prompts        map[sharedPrompt]promptUse
	oldest, newest *agent // of those in tools
}

// sharedPrompt is a group's prompt as one version of the weights read it.
type sharedPrompt struct {
	group   loop.GroupID
	version loop.Version
}

// promptUse is how long it is, and how many rollouts use it.
type promptUse struct {
	tokens int64
	users  int32
}

// cached is an agent's context in its engine's cache.
type cached struct {
	in *contexts // nil: it has none
	// own are its tokens beyond the prompt of so many; by is the version that read them.
	own, prompt  int64
	by           loop.Version
	older, newer *agent
	left         bool // it is in a tool or without a slot, and may lose it
	parked       bool // it was interrupted since it read last
}

// recall finds what is left of an agent's context in its engine's cache, says what it has to read, and holds all of it.
func (r *runner) recall(a *agent) {
	w, s := r.agents, &r.slots[a.slot]
	if w.cfg.CacheTokens == 0 {
		return
	}
	e, k := &r.engines[s.engine], &w.contexts[s.engine]
	if a.context.in != nil && a.context.by != e.served {
		a.forget()
	}
	all := a.read + int64(s.counted)
	found := all - a.unread
	switch {
	case a.context.in == nil:
		found = k.join(a, e.served, all, w.cfg)
	case a.context.parked:
		found = min(a.context.prompt+a.context.own, all)
	}
	a.context.parked = false
	k.stay(a)
	a.unread = all - found
	w.found += found
	w.asked += all
	k.grow(a, all, w.cfg)
}

// join makes an agent a user of its group's prompt, and returns how much of a context of so many tokens it finds.
func (k *contexts) join(a *agent, by loop.Version, all int64, cfg *Agents) (found int64) {
	key := sharedPrompt{a.group, by}
	prompt := k.prompts[key]
	if prompt.users == 0 {
		prompt.tokens = min(a.promptTokens(cfg), all)
		k.held += prompt.tokens
	} else {
		found = min(prompt.tokens, all)
	}
	prompt.users++
	k.prompts[key] = prompt
	a.context = cached{in: k, by: by, prompt: prompt.tokens}
	return found
}

// grow holds an agent's context of so many tokens, at the cost of those that left.
func (k *contexts) grow(a *agent, all int64, cfg *Agents) {
	own := max(all-a.context.prompt, 0)
	k.held += own - a.context.own
	a.context.own = own
	k.fit(cfg)
}

// fit has those that left longest ago lose their contexts until the rest fits.
func (k *contexts) fit(cfg *Agents) {
	for k.held > cfg.CacheTokens && k.oldest != nil {
		k.oldest.forget()
	}
}

// keepContext leaves the context of an agent that was interrupted, of so many tokens, to its engine's cache. One that was
// being read is gone.
func (r *runner) keepContext(a *agent, was state, tokens int64) {
	k := a.context.in
	switch {
	case k == nil:
	case was == waitsPrefill || was == prefills:
		a.forget()
	default:
		a.context.parked = true
		k.grow(a, tokens, r.agents.cfg)
		k.leave(a, r.agents.cfg)
	}
}

// leave says that an agent goes into a tool, or loses its slot.
func (k *contexts) leave(a *agent, cfg *Agents) {
	if a.context.left || a.context.in == nil { // grow may have taken it
		return
	}
	a.context.left, a.context.older = true, k.newest
	if k.newest == nil {
		k.oldest = a
	} else {
		k.newest.context.newer = a
	}
	k.newest = a
	k.fit(cfg)
}

// stay says that it is back.
func (k *contexts) stay(a *agent) {
	c := &a.context
	if !c.left {
		return
	}
	if c.older == nil {
		k.oldest = c.newer
	} else {
		c.older.context.newer = c.newer
	}
	if c.newer == nil {
		k.newest = c.older
	} else {
		c.newer.context.older = c.older
	}
	c.older, c.newer, c.left = nil, nil, false
}

// forget drops an agent's context, if it has one.
func (a *agent) forget() {
	k := a.context.in
	if k == nil {
		return
	}
	k.stay(a)
	key := sharedPrompt{a.group, a.context.by}
	prompt := k.prompts[key]
	if prompt.users--; prompt.users == 0 {
		delete(k.prompts, key)
		k.held -= prompt.tokens
	} else {
		k.prompts[key] = prompt
	}
	k.held -= a.context.own
	a.context = cached{}
}

// promptTokens are those of its prompt.
func (a *agent) promptTokens(cfg *Agents) int64 {
	if a.turns != nil {
		return int64(a.turns[0].ContextTokens)
	}
	return int64(cfg.PromptTokens)
}
