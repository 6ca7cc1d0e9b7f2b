package foreign

// always is a figure that a framework leaves no choice about.
func always(value float64) func(Values) (float64, bool) {
	return func(Values) (float64, bool) { return value, true }
}

// average is the mean of the keys that fit a pattern.
func average(pattern string) func(Values) (float64, bool) {
	return func(v Values) (float64, bool) { return v.Average(pattern) }
}

// less takes keys off a first one, which must be there; of the others those that are.
func less(from string, names ...string) func(Values) (float64, bool) {
	return func(v Values) (float64, bool) {
		left, ok := v.Get(from)
		for _, name := range names {
			value, _ := v.Get(name)
			left -= value
		}
		return left, ok
	}
}

// over divides a key by a setting.
func over(name string, by Setting) func(Values) (float64, bool) {
	return func(v Values) (float64, bool) {
		value, ok := v.Get(name)
		divisor, known := v.Setting(by)
		return value / divisor, ok && known && divisor != 0
	}
}

// share divides one of a step's figures by another that rules before this one have found.
func share(of, by Notion) func(Values) (float64, bool) {
	return func(v Values) (float64, bool) {
		a, ok := v.Step(of)
		b, there := v.Step(by)
		return a / b, ok && there && b != 0
	}
}

// configTimes multiplies a setting of the config by one found before.
func configTimes(name string, by Setting) func(Values) (float64, bool) {
	return func(v Values) (float64, bool) {
		value, ok := v.Config(name)
		factor, known := v.Setting(by)
		return value * factor, ok && known
	}
}
