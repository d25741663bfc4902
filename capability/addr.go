package capability

import (
	"net/netip"
	"strings"
)

// Metadata services of clouds and what stands in for them: anything there hands
// credentials to whoever asks. Both link-local ranges are included whole: clouds
// keep adding services there, and nothing else in them can be reached by a plain
// address.
var metadataPrefixes = prefixes(
	"169.254.0.0/16",     // IPv4 link-local: AWS, Google, Azure, Oracle, ECS, EKS, ...
	"fe80::/10",          // IPv6 link-local: OpenStack's fe80::a9fe:a9fe
	"100.100.100.200/32", // Alibaba
	"192.0.0.192/32",     // Oracle, older
	"168.63.129.16/32",   // Azure's wire server, a public address used inside
	"fd00:ec2::/32",      // AWS
	"fd20:ce::/32",       // Google
)

// metadataNames are names of the same services; names below them count too.
var metadataNames = []string{
	"metadata",
	"metadata.google.internal",
	"metadata.goog",
	"metadata.azure.internal",
	"metadata.azure.com",
	"metadata.tencentyun.com",
	"metadata.oraclecloud.com",
	"metadata.platformequinix.com",
	"metadata.packet.net",
	"api.metadata.cloud.ibm.com",
	"instance-data",
	"instance-data.ec2.internal",
}

// privatePrefixes are what the special-purpose address registries of IANA
// (RFC 6890 and successors) list as not globally reachable, and the ranges that
// embed or relay IPv4. In IPv6, all outside 2000::/3 is private as well.
var (
	privatePrefixes = prefixes(
		"0.0.0.0/8",       // this network
		"10.0.0.0/8",      // RFC 1918
		"100.64.0.0/10",   // carrier-grade NAT, RFC 6598
		"127.0.0.0/8",     // loopback
		"172.16.0.0/12",   // RFC 1918
		"192.0.0.0/24",    // protocol assignments
		"192.0.2.0/24",    // documentation
		"192.88.99.0/24",  // 6to4 relays, deprecated
		"192.168.0.0/16",  // RFC 1918
		"198.18.0.0/15",   // benchmarks
		"198.51.100.0/24", // documentation
		"203.0.113.0/24",  // documentation
		"224.0.0.0/4",     // multicast
		"240.0.0.0/4",     // reserved, and broadcast
		"2001::/23",       // protocol assignments: Teredo, benchmarks, ORCHID
		"2001:db8::/32",   // documentation
		"2002::/16",       // 6to4
		"3ffe::/16",       // 6bone, returned
		"3fff::/20",       // documentation
	)
	globalUnicast = netip.MustParsePrefix("2000::/3")
)

func prefixes(list ...string) []netip.Prefix {
	out := make([]netip.Prefix, len(list))
	for i, s := range list {
		out[i] = netip.MustParsePrefix(s)
	}
	return out
}

func in(a netip.Addr, list []netip.Prefix) bool {
	for _, p := range list {
		if p.Contains(a) {
			return true
		}
	}
	return false
}

// MetadataAddr reports whether a belongs to a metadata service, directly or as
// an IPv4 address inside an IPv6 one (mapped, compatible, NAT64, 6to4, Teredo,
// ISATAP). No capability grants such an address, and a host must not connect to
// it. A zone is ignored; the zero Addr counts as one.
func MetadataAddr(a netip.Addr) bool {
	if !a.IsValid() {
		return true
	}
	a = a.WithZone("").Unmap()
	if in(a, metadataPrefixes) {
		return true
	}
	for _, v4 := range embedded(a) {
		if in(v4, metadataPrefixes) {
			return true
		}
	}
	return false
}

// PrivateAddr reports whether a is anything but a public address: global
// unicast outside every special range of IPv4 and IPv6, such as loopback, RFC
// 1918, carrier-grade NAT, unique local, site-local, documentation, multicast,
// NAT64 and 6to4. It holds for all that [MetadataAddr] holds for. An IPv4 address
// mapped into IPv6 is judged as IPv4; a zone is ignored; the zero Addr is private.
func PrivateAddr(a netip.Addr) bool {
	if MetadataAddr(a) {
		return true
	}
	a = a.WithZone("").Unmap()
	return in(a, privatePrefixes) || a.Is6() && !globalUnicast.Contains(a)
}

// embedded returns the IPv4 addresses that parts of the network may take an
// IPv6 address for.
func embedded(a netip.Addr) []netip.Addr {
	if !a.Is6() {
		return nil
	}
	b := a.As16()
	at := func(i int) netip.Addr { return netip.AddrFrom4([4]byte(b[i : i+4])) }
	var out []netip.Addr
	switch {
	case in(a, compatible):
		out = append(out, at(12))
	case in(a, nat64):
		// RFC 6052 section 2.2: behind a prefix of 96 or of 48 bits, the latter
		// around the byte at 8.
		out = append(out, at(12), netip.AddrFrom4([4]byte{b[6], b[7], b[9], b[10]}))
	case in(a, sixToFour):
		out = append(out, at(2))
	case in(a, teredo):
		out = append(out, at(4), netip.AddrFrom4([4]byte{^b[12], ^b[13], ^b[14], ^b[15]}))
	}
	if b[8]&^2 == 0 && b[9] == 0 && b[10] == 0x5e && b[11] == 0xfe { // ISATAP, RFC 5214 section 6.1
		out = append(out, at(12))
	}
	return out
}

var (
	compatible = prefixes("::/96")
	nat64      = prefixes("64:ff9b::/96", "64:ff9b:1::/48")
	sixToFour  = prefixes("2002::/16")
	teredo     = prefixes("2001::/32")
)

// MetadataHost reports whether host, a name or an address as
// [net/url.URL.Hostname] returns it or in brackets, is a metadata service's or
// lies below one's name. Case and a dot at the end do not matter. It is a list of
// known names: what any other name resolves to is for [MetadataAddr].
func MetadataHost(host string) bool {
	host = strings.TrimSuffix(lowerASCII(host), ".")
	if a, err := netip.ParseAddr(strings.Trim(host, "[]")); err == nil {
		return MetadataAddr(a)
	}
	for _, name := range metadataNames {
		if host == name || strings.HasSuffix(host, "."+name) {
			return true
		}
	}
	return false
}
