package replay

// Groups returns how many groups were started, and how many of them are wholly known.
func (r *Recording) Groups() (started, complete int) {
	for i := range r.groups {
		if r.groups[i].whole {
			complete++
		}
	}
	return len(r.groups), complete
}

// AskNS is how long a trainer took to ask for its next batch.
func (r *Recording) AskNS() int64 { return r.askNS() }
