package rows

import (
	"encoding/base64"
	"encoding/binary"
)

// pairs has, of two letters of base64 as a little-endian number, their twelve bits, and badPair of all others.
var pairs = func() *[1 << 16]uint16 {
	const letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
	table := new([1 << 16]uint16)
	for i := range table {
		table[i] = badPair
	}
	for i := range letters {
		for j := range letters {
			table[int(letters[i])|int(letters[j])<<8] = uint16(i<<6 | j)
		}
	}
	return table
}()

const badPair = 1 << 15

// decodeText decodes text of whole groups of four letters into to, which has room for three bytes a group. It takes
// half of the time of encoding/base64, to which padding and everything wrong are left.
func decodeText(to, text []byte) (int, error) {
	n := 0
	for len(text) >= 32 && len(to)-n >= 26 {
		from, out := (*[32]byte)(text), (*[26]byte)(to[n:])
		w, bad0 := sixBytes(binary.LittleEndian.Uint64(from[0:]))
		x, bad1 := sixBytes(binary.LittleEndian.Uint64(from[8:]))
		y, bad2 := sixBytes(binary.LittleEndian.Uint64(from[16:]))
		z, bad3 := sixBytes(binary.LittleEndian.Uint64(from[24:]))
		if (bad0|bad1|bad2|bad3)&badPair != 0 {
			break
		}
		binary.BigEndian.PutUint64(out[0:], w)
		binary.BigEndian.PutUint64(out[6:], x)
		binary.BigEndian.PutUint64(out[12:], y)
		binary.BigEndian.PutUint64(out[18:], z)
		n, text = n+24, text[32:]
	}
	more, err := base64.StdEncoding.Decode(to[n:], text)
	return n + more, err
}

// sixBytes are the bytes of eight letters, from the highest on, and a bad pair where one is none.
func sixBytes(letters uint64) (uint64, uint16) {
	a, b, c, d := pairs[uint16(letters)], pairs[uint16(letters>>16)], pairs[uint16(letters>>32)], pairs[letters>>48]
	return uint64(a)<<52 | uint64(b)<<40 | uint64(c)<<28 | uint64(d)<<16, a | b | c | d
}

// The letters of three int32 below 256 in base64, little-endian: those that are an A, by half.
const (
	narrowFirst, narrowFirstA   = 0xff0000ffffff0000, 0x4100004141410000
	narrowSecond, narrowSecondA = 0xffffffff0000ffff, 0x4141414100004141
)

// decodeNarrow decodes text of int32 below 256 into one byte each, in groups of three numbers and sixteen letters. It
// stops before the first group that has anything else. It returns how many numbers it has decoded.
func decodeNarrow(to, text []byte) int {
	n := 0
	for len(text) >= 16 && len(to)-n >= 3 {
		x, y := binary.LittleEndian.Uint64(text), binary.LittleEndian.Uint64(text[8:])
		// Bits of letters that stand for a zero byte's part of the numbers are in the pairs' rest.
		a, b, c := pairs[uint16(x)], pairs[uint16(x>>40)], pairs[uint16(y>>16)]
		if x&narrowFirst != narrowFirstA || y&narrowSecond != narrowSecondA || a&(badPair|0xf)|b&(badPair|0xc03)|c&(badPair|0xf00) != 0 {
			break
		}
		out := to[n : n+3]
		out[0], out[1], out[2] = byte(a>>4), byte(b>>2), byte(c)
		n, text = n+3, text[16:]
	}
	return n
}
