/**
 * A device of which this package must hear two calls that others make: `popErrorScope`, since an error that a scope of the
 * device's user catches still counts, and `destroy`, since mapped memory must not go while a thread copies it. They are
 * replaced on the device's object, and given back with the last watcher.
 */

/** Who watches the calls that a device's user makes on it. */
export interface Watcher {
  /** Told of an error that a scope of the user has caught. */
  error(error: GPUError): void;
  /** Called before the device is destroyed. @returns false where it must not be */
  destroying(): boolean;
}

/** A device's own calls, in whose place others stand while it is watched. */
export interface WatchedDevice {
  readonly popErrorScope: GPUDevice['popErrorScope'];
  readonly destroy: GPUDevice['destroy'];
  readonly watchers: Set<Watcher>;
}

/** Several runtimes may share a device: its calls are replaced once, and given back by the last one. */
const watchedDevices = new WeakMap<GPUDevice, WatchedDevice>();

export function watchDevice(device: GPUDevice, watcher: Watcher): WatchedDevice {
  let watched = watchedDevices.get(device);
  if (watched === undefined) {
    const { popErrorScope, destroy } = device;
    const watchers = new Set<Watcher>();
    watched = { popErrorScope, destroy, watchers };
    watchedDevices.set(device, watched);
    device.popErrorScope = async () => {
      const error = await popErrorScope.call(device);
      if (error !== null) for (const each of watchers) each.error(error);
      return error;
    };
    device.destroy = () => {
      if ([...watchers].map((each) => each.destroying()).includes(false)) return undefined;
      return destroy.call(device);
    };
  }
  watched.watchers.add(watcher);
  return watched;
}

export function unwatchDevice(device: GPUDevice, watcher: Watcher): void {
  const watched = watchedDevices.get(device);
  if (watched === undefined || !watched.watchers.delete(watcher) || watched.watchers.size > 0) return;
  watchedDevices.delete(device);
  device.popErrorScope = watched.popErrorScope;
  device.destroy = watched.destroy;
}

/** Devices with a copy that never ends: the memory that it touches is theirs, so they are held until the process ends. */
const keptDevices = new Set<GPUDevice>();

/** The device is not destroyed any more, nor collected. */
export function keepDevice(device: GPUDevice): void {
  keptDevices.add(device);
}

export function isKept(device: GPUDevice): boolean {
  return keptDevices.has(device);
}
