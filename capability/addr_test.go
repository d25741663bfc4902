package capability

import (
	"net/netip"
	"testing"
)

func TestAddr(t *testing.T) {
	const (
		public = iota
		private
		metadata
	)
	tests := map[string]int{
		"1.1.1.1": public, "93.184.216.34": public, "100.63.255.255": public, "100.128.0.0": public, "172.15.0.1": public,
		"172.32.0.1": public, "192.0.1.1": public, "198.17.0.1": public, "198.20.0.1": public, "223.255.255.255": public,
		"2606:4700::1111": public, "2a00:1450::1": public, "::ffff:1.1.1.1": public, "2001:200::1": public,

		"0.0.0.0": private, "0.1.2.3": private, "10.0.0.1": private, "100.64.0.1": private, "100.127.255.255": private,
		"127.0.0.1": private, "127.1.2.3": private, "172.16.0.1": private, "172.31.255.255": private, "192.0.0.1": private,
		"192.0.2.1": private, "192.88.99.1": private, "192.168.1.1": private, "198.18.0.1": private, "198.19.255.255": private,
		"198.51.100.1": private, "203.0.113.1": private, "224.0.0.1": private, "239.1.1.1": private, "240.0.0.1": private,
		"255.255.255.255": private, "::": private, "::1": private, "::ffff:127.0.0.1": private, "::ffff:10.0.0.1": private,
		"::1.1.1.1": private, "64:ff9b::7f00:1": private, "64:ff9b::1.1.1.1": private, "64:ff9b:1::1": private, "100::1": private,
		"2001::1": private, "2001:2::1": private, "2001:10::1": private, "2001:20::1": private, "2001:db8::1": private,
		"2002:7f00:1::": private, "2002:101:101::1": private, "3fff::1": private, "5f00::1": private, "4000::1": private,
		"fc00::1": private, "fd12:3456::1": private, "fec0::1": private, "ff02::1": private,

		"169.254.169.254": metadata, "169.254.170.2": metadata, "169.254.0.1": metadata, "100.100.100.200": metadata,
		"192.0.0.192": metadata, "168.63.129.16": metadata, "fd00:ec2::254": metadata, "fd20:ce::254": metadata,
		"fe80::1": metadata, "fe80::a9fe:a9fe": metadata, "fe80::1%eth0": metadata, "::ffff:169.254.169.254": metadata,
		"::ffff:169.254.169.254%1": metadata, "::169.254.169.254": metadata, "64:ff9b::169.254.169.254": metadata,
		"64:ff9b:1::169.254.169.254": metadata, "64:ff9b:1:a9fe:a9:fe00::": metadata, "2002:a9fe:a9fe::1": metadata,
		"2001:0:a9fe:a9fe::1": metadata, "2001:0:101:101::5601:5601": metadata, "2a00::5efe:a9fe:a9fe": metadata,
		"2a00::200:5efe:100.100.100.200": metadata,
	}
	for text, want := range tests {
		a := netip.MustParseAddr(text)
		if got := PrivateAddr(a); got != (want >= private) {
			t.Errorf("PrivateAddr(%s) = %v", text, got)
		}
		if got := MetadataAddr(a); got != (want == metadata) {
			t.Errorf("MetadataAddr(%s) = %v", text, got)
		}
	}
	if !PrivateAddr(netip.Addr{}) || !MetadataAddr(netip.Addr{}) {
		t.Error("the zero Addr may be connected to")
	}
}

func TestMetadataHost(t *testing.T) {
	for host, want := range map[string]bool{
		"metadata.google.internal": true, "METADATA.Google.Internal.": true, "x.metadata.google.internal": true,
		"metadata": true, "instance-data": true, "169.254.169.254": true, "fd00:ec2::254": true, "[fd00:ec2::254]": true,
		"100.100.100.200": true, "::ffff:169.254.169.254": true, "169.254.169.254.": true,
		"": false, "google.internal": false, "xmetadata.google.internal": false, "metadata.example": false,
		"metadata.google.internal.example": false, "1.1.1.1": false, "10.0.0.1": false,
	} {
		if got := MetadataHost(host); got != want {
			t.Errorf("MetadataHost(%q) = %v, want %v", host, got, want)
		}
	}
}
