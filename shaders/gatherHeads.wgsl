// Copies runs out of blocks into a dense tensor. Each unit of the tensor is written once.

@group(0) @binding(2) var<storage, read> slab: array<Stored>;
@group(0) @binding(3) var<storage, read_write> tensor: array<Stored>;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
  let unit = unitOf(id.y * groups.x * 64u + id.x);
  if (unit.isPresent) {
    tensor[unit.inTensor] = slab[unit.inSlab];
  }
}
