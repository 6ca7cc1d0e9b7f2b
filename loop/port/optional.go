package port

// Wrapper is implemented by ports that stand before another port of their kind. [As] so finds the optional interfaces
// of that port.
type Wrapper interface {
	// Inner returns the port behind this one; not nil.
	Inner() any
}

// As returns the optional interface T of a port, such as [Timed]. It takes that of the port itself, else that of the
// nearest one behind it. Result ok is false where none of them has it. A type assertion would see the outermost port
// alone.
func As[T any](p any) (found T, ok bool) {
	for {
		if found, ok = p.(T); ok {
			return found, true
		}
		wrapper, wraps := p.(Wrapper)
		if !wraps {
			return found, false
		}
		p = wrapper.Inner()
	}
}
