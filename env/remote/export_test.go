package remote

// Expire ends the claims of a worker that has died, as if their time were over, and says how many.
func (e *Dispatcher) Expire(worker string) (expired int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, s := range e.sessions {
		if s.state == stateClaimed && s.worker == worker {
			e.expire(s, s.deadline)
			expired++
		}
	}
	return expired
}
