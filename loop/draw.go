package loop

// Draw returns 64 uniform bits, a function of a seed and the index of a draw alone. The loop's own
// random choices, replay sampling and the curriculum, are made of these, and both numbers are part
// of its state.
func Draw(seed, index uint64) uint64 {
	x := seed*0x9e3779b97f4a7c15 + index*0xd1342543de82ef95 + 0x632be59bd9b4e019
	for range 2 { // two rounds of an invertible finaliser: neighbouring indices share no bits
		x ^= x >> 32
		x *= 0xe9846af9b1a615d9
		x ^= x >> 29
		x *= 0x94d049bb133111eb
		x ^= x >> 31
	}
	return x
}

// unit maps bits to [0, 1).
func unit(bits uint64) float64 { return float64(bits>>11) / (1 << 53) }

// Mix is the finalizer of splitmix64: every bit in reaches every bit out.
func Mix(x uint64) uint64 {
	x ^= x >> 30
	x *= 0xbf58476d1ce4e5b9
	x ^= x >> 27
	x *= 0x94d049bb133111eb
	return x ^ x>>31
}
