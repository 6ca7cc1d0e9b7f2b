package serving

// admit takes the first call that waits, if all of its context fits: vLLM admits no prompt that it could not read to its end.
// It returns nil if none can be. A call whose cache comes from elsewhere is loading then, and ready later.
func (r *replica) admit(now int64) *call {
	c := r.waiting.first()
	if c == nil || r.blocked {
		return nil
	}
	c.target = c.input + c.made
	most := (c.target - 1) / int32(r.engine.BlockTokens)
	if r.engine.NoPrefixCache {
		most = 0
	}
	found, idle := r.cache.find(&c.chain, most)
	if r.blocks(c.target)-found > r.cache.room()-idle-r.reserved() {
		r.blocked = true
		return nil
	}
	r.waiting.takeFirst()
	c.version = r.run.version
	c.leaf, c.path = r.cache.acquire(&c.chain, found), found
	c.computed = found * int32(r.engine.BlockTokens)
	r.fetch(c, most, now)
	if !c.started {
		c.started = true
		one := &r.run.result.Calls[c.result]
		one.Found, one.Loaded = int(c.computed), int(c.external)
	}
	return c
}

// fetch starts the loading of what the cache lacks: from the replica that has read the prompt, or from the host.
func (r *replica) fetch(c *call, most int32, now int64) {
	c.external = 0
	var link *int64
	var took float64
	switch {
	case c.from != nil:
		if c.external = c.target - 1 - c.computed; c.external == 0 {
			r.run.leave(c)
			return
		}
		apart := r.run.config.Prefill
		link, took = &c.from.linkAt, apart.StartS+apart.TokenS*float64(c.external)
	case r.host != nil:
		held, _ := r.host.find(&c.chain, most)
		if held <= c.path {
			return
		}
		r.host.store(&c.chain, held)
		c.external = (held - c.path) * int32(r.engine.BlockTokens)
		link, took = &r.hostAt, r.engine.HostTokenS*float64(c.external)
	default:
		return
	}
	r.cache.take(r.blocks(c.computed+c.external) - c.path)
	r.peak = max(r.peak, r.cache.active)
	c.loading = true
	*link = max(*link, now) + nanoseconds(took)
	r.run.load(r, c, *link)
}

// loaded makes a call ready whose cache has come.
func (r *replica) loaded(c *call, now int64) {
	c.loading = false
	c.computed += c.external
	c.external = 0
	r.publish(c, c.computed)
	if c.from != nil {
		r.run.leave(c)
	}
	r.ready.putLast(c)
	r.interrupt(now)
}
