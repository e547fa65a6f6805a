package sqlite

import "golang.org/x/sys/unix"

// networked are file systems of several machines, by their magic numbers. Their locks, and memory
// that is mapped, do not reach from one machine to another.
var networked = map[uint32]string{
	unix.NFS_SUPER_MAGIC: "NFS", unix.CIFS_SUPER_MAGIC: "CIFS", unix.SMB2_SUPER_MAGIC: "SMB", unix.SMB_SUPER_MAGIC: "SMB",
	unix.AFS_SUPER_MAGIC: "AFS", unix.CEPH_SUPER_MAGIC: "Ceph", unix.CODA_SUPER_MAGIC: "Coda", unix.V9FS_MAGIC: "9P",
}

// checkFileSystem refuses network file systems.
func checkFileSystem(dir string) error {
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		return refusal("directory %s: %w", dir, err)
	}
	return checkType(dir, uint32(s.Type))
}

func checkType(dir string, magic uint32) error {
	if name := networked[magic]; name != "" {
		return refusal("directory %s is on a network file system (%s): use one of this machine", dir, name)
	}
	return nil
}
