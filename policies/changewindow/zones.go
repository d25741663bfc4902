package changewindow

import (
	_ "embed"
	"encoding/binary"
	"fmt"
	"strings"
	"time"
)

// zoneinfo is lib/time/zoneinfo.zip of Go: the IANA time zone database, which is in
// the public domain, without compression. time.LoadLocation has it, too, but looks
// for files first, and a guest that could open files would not be loaded.
//
//go:embed zoneinfo.zip
var zoneinfo string

// zone returns a time zone by its name in the database, or UTC.
func zone(name string) (*time.Location, error) {
	if name == "UTC" {
		return time.UTC, nil
	}
	const (
		endSize, entrySize, localSize = 22, 46, 30
	)
	u16 := func(at int) int { return int(binary.LittleEndian.Uint16([]byte(zoneinfo[at : at+2]))) }
	u32 := func(at int) int { return int(binary.LittleEndian.Uint32([]byte(zoneinfo[at : at+4]))) }
	end := len(zoneinfo) - endSize
	at := u32(end + 16)
	for range u16(end + 10) {
		size, nameLen := u32(at+24), u16(at+28)
		entry := zoneinfo[at+entrySize : at+entrySize+nameLen]
		if entry == name && !strings.HasSuffix(name, "/") {
			local := u32(at + 42)
			data := local + localSize + u16(local+26) + u16(local+28)
			return time.LoadLocationFromTZData(name, []byte(zoneinfo[data:data+size]))
		}
		at += entrySize + nameLen + u16(at+30) + u16(at+32)
	}
	return nil, fmt.Errorf("zone %q: not in the database", name)
}
