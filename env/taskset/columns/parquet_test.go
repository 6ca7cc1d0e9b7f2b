package columns

import (
	"bytes"
	"testing"

	"github.com/parquet-go/parquet-go"
)

// Unsigned numbers keep their value from 2^63 on, wherever they stand in a row; signed ones keep their sign.
func TestUnsignedNumbers(t *testing.T) {
	type row struct {
		Signed   int64             `parquet:"signed"`
		Small    uint32            `parquet:"small"`
		Large    uint64            `parquet:"large"`
		Optional *uint64           `parquet:"optional,optional"`
		List     []uint64          `parquet:"list,list"`
		Repeated []uint64          `parquet:"repeated"`
		Map      map[string]uint64 `parquet:"map"`
	}
	large := uint64(1<<63 + 5)
	var file bytes.Buffer
	writer := parquet.NewGenericWriter[row](&file)
	_, err := writer.Write([]row{{-7, 1 << 31, large, &large, []uint64{large, 1}, []uint64{large}, map[string]uint64{"k": large}}})
	if err != nil || writer.Close() != nil {
		t.Fatal(err)
	}
	const want = `{"large":9223372036854775813,"list":[9223372036854775813,1],"map":{"k":9223372036854775813},` +
		`"optional":9223372036854775813,"repeated":[9223372036854775813],"signed":-7,"small":2147483648}`
	got := ""
	err = Read(bytes.NewReader(file.Bytes()), int64(file.Len()), func(object []byte, err error) bool {
		got = string(object)
		return err == nil
	})
	if err != nil || got != want {
		t.Errorf("read %s, %v; want %s", got, err, want)
	}
}
