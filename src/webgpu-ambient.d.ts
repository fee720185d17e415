// The few DOM names that @webgpu/types refers to. Declaring them keeps lib `dom`, and `window`, out of scope,

// and keeps skipLibCheck off: with it on, these names would silently become `any` and a wrong writeBuffer
// call would type-check.
type BufferSource = ArrayBuffer | ArrayBufferView<ArrayBufferLike>;
type EventListenerOrEventListenerObject = ((event: Event) => void) | { handleEvent(event: Event): void };
interface AddEventListenerOptions {
  once?: boolean;
  passive?: boolean;
  capture?: boolean;
  signal?: AbortSignal;
}
interface EventInit {
  bubbles?: boolean;
  cancelable?: boolean;
  composed?: boolean;
}
type PredefinedColorSpace = 'srgb' | 'display-p3';
type HTMLImageElement = never;
type ImageBitmap = never;
type ImageData = never;
type VideoFrame = never;
