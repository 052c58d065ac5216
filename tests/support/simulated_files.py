"""A disk for small files that loses unsynced changes in a crash. It can fail at any step."""

from posixpath import dirname, normpath


class PowerCut(Exception):
    """The machine lost power before this step."""


class SimulatedFiles:
    """Implements `Files` in memory. `write` makes content durable, and `sync_directory` makes new or changed names
    durable.

    The first `steps` operations that change something succeed, and the next one raises PowerCut. With None, all
    operations succeed.
    """

    def __init__(self, steps=None):
        self.steps = steps
        self.taken = 0
        self.files, self.durable = {}, {}
        self.directories = {"/"}
        self.pending = []  # changes of names that no sync has covered yet: (directory, change)
        self.locked = set()

    def crash(self, rng):
        """Keeps the durable state. Each directory also keeps a random number of its first unsynced changes of names."""
        cut = {}
        for directory, change in self.pending:
            if cut.setdefault(directory, rng.random()) > rng.random():
                change(self.durable)
            else:
                cut[directory] = -1.0
        self.files, self.pending, self.steps = dict(self.durable), [], None
        self.locked.clear()

    def read(self, path):
        if path not in self.files:
            raise FileNotFoundError(2, "No such file or directory", path)
        return self.files[path]

    def write(self, path, data):
        self._step()
        self.files[path] = data
        if path in self.durable:
            self.durable[path] = data
        else:
            self._change(path, lambda files: files.__setitem__(path, data))

    def rename(self, old, new):
        self._step()
        data = self.files[new] = self.files.pop(old)

        def move(files):
            files.pop(old, None)
            files[new] = data

        self._change(new, move)

    def unlink(self, path):
        self._step()
        if self.files.pop(path, None) is None:
            raise FileNotFoundError(2, "No such file or directory", path)
        self._change(path, lambda files: files.pop(path, None))

    def sync_directory(self, path):
        self._step()
        for directory, change in self.pending:
            if directory == normpath(path):
                change(self.durable)
        self.pending = [pending for pending in self.pending if pending[0] != normpath(path)]

    def make_directories(self, path):
        path = normpath(path)
        while path not in self.directories:
            self.directories.add(path)
            path = dirname(path)

    def list(self, path):
        entries = [*self.files, *self.directories]
        return sorted(
            {entry.rsplit("/", 1)[1] for entry in entries if dirname(entry) == normpath(path) and entry != "/"}
        )

    def list_directories(self, path):
        return [name for name in self.list(path) if self.is_directory(f"{path}/{name}")]

    def is_directory(self, path):
        return normpath(path) in self.directories

    def exists(self, path):
        return path in self.files or self.is_directory(path)

    def lock(self, path):
        if path in self.locked:
            raise BlockingIOError(11, "locked by this process", path)
        self.locked.add(path)
        return SimulatedLock(self, path)

    def _change(self, path, change):
        self.pending.append((dirname(path), change))

    def _step(self):
        if self.steps is not None and self.taken >= self.steps:
            raise PowerCut
        self.taken += 1


class SimulatedLock:
    def __init__(self, files, path):
        self.files, self.path = files, path

    def close(self):
        self.files.locked.discard(self.path)
