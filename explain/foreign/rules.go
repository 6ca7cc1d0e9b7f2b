package foreign

// key takes one key as it is.
func key(name string) func(Values) (float64, bool) {
	return func(v Values) (float64, bool) { return v.Get(name) }
}

// difference takes one key less others, all of which must be there.
func difference(from string, less ...string) func(Values) (float64, bool) {
	return func(v Values) (float64, bool) {
		a, ok := v.Get(from)
		for _, name := range less {
			b, there := v.Get(name)
			a, ok = a-b, ok && there
		}
		return a, ok
	}
}

// sum takes one key and others, those of them that are there.
func sum(first string, others ...string) func(Values) (float64, bool) {
	return func(v Values) (float64, bool) {
		a, ok := v.Get(first)
		for _, name := range others {
			b, _ := v.Get(name)
			a += b
		}
		return a, ok
	}
}

// with takes a figure where a key is there.
func with(name string, of func(Values) (float64, bool)) func(Values) (float64, bool) {
	return func(v Values) (float64, bool) {
		if _, there := v.Get(name); !there {
			return 0, false
		}
		return of(v)
	}
}

// times multiplies a key by a setting.
func times(name string, s Setting) func(Values) (float64, bool) {
	return func(v Values) (float64, bool) {
		a, ok := v.Get(name)
		b, known := v.Setting(s)
		return a * b, ok && known
	}
}

// configProduct multiplies settings of the config.
func configProduct(names ...string) func(Values) (float64, bool) {
	return func(v Values) (float64, bool) {
		product := 1.0
		for _, name := range names {
			value, ok := v.Config(name)
			if !ok {
				return 0, false
			}
			product *= value
		}
		return product, true
	}
}

// ratio divides one key by another.
func ratio(over, under string) func(Values) (float64, bool) {
	return func(v Values) (float64, bool) {
		a, there := v.Get(over)
		b, too := v.Get(under)
		return a / b, there && too && b != 0
	}
}

// atLeast takes a setting of the config that is no less than a bound.
func atLeast(bound float64, name string) func(Values) (float64, bool) {
	return func(v Values) (float64, bool) {
		value, ok := v.Config(name)
		return value, ok && value >= bound
	}
}

// mean takes what was logged under a key on average over the whole log.
func mean(name string) func(Values) (float64, bool) {
	return func(v Values) (float64, bool) { return v.Mean(name) }
}

// queue is a framework's rule where it has one alone.
func queue(policy, preset string) func(Values) (string, string) {
	return func(Values) (string, string) { return policy, preset }
}
