package foreign

// key takes one key as it is.
func key(name string) func(Values) (float64, bool) {
	return func(v Values) (float64, bool) { return v.Get(name) }
}

// difference takes one key less another.
func difference(from, less string) func(Values) (float64, bool) {
	return func(v Values) (float64, bool) {
		a, there := v.Get(from)
		b, too := v.Get(less)
		return a - b, there && too
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
