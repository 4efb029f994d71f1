# Gangway for Ruby without a binding: Fiddle opens the library, and abi.json says what is in it. DLOPEN.md explains the steps.
#   GANGWAY_LIBRARY    the library (default: by its SONAME, as the loader finds it)
#   GANGWAY_ABI        abi.json (default: that of the sources)
require "fiddle"
require "json"

module Gangway
  ABI = JSON.parse(File.read(ENV.fetch("GANGWAY_ABI") { File.join(__dir__, "../../capi/abi.json") }))
  LIBRARY = Fiddle.dlopen(ENV.fetch("GANGWAY_LIBRARY", ABI["soname"]))
  CONSTANTS = ABI["enums"].values.map { |enum| enum["constants"] }.reduce(:merge)
  TYPES = { "void" => Fiddle::TYPE_VOID, "i32" => Fiddle::TYPE_INT, "i64" => Fiddle::TYPE_LONG_LONG,
            "u64" => -Fiddle::TYPE_LONG_LONG, "f64" => Fiddle::TYPE_DOUBLE, "pointer" => Fiddle::TYPE_VOIDP }.freeze
  PACKED = { "i32" => "l", "i64" => "q", "u64" => "Q", "f64" => "d", "pointer" => "J" }.freeze # for pack and unpack1

  class Error < StandardError; end

  FUNCTIONS = Hash.new do |made, name|
    described = ABI["functions"].fetch(name)
    arguments = described["arguments"].map { |argument| TYPES.fetch(argument["type"]) }
    made[name] = [Fiddle::Function.new(LIBRARY[name], arguments, TYPES.fetch(described["result"])), described["status"]]
  end

  # Calls a function by its name; a status that is not GW_OK becomes an Error with the library's text.
  def self.call(name, *arguments)
    function, is_status = FUNCTIONS[name]
    result = function.call(*arguments.map { |argument| argument.is_a?(Struct) ? argument.memory : argument })
    raise Error, call("gw_last_error_text").to_s if is_status && result != CONSTANTS["GW_OK"]

    result
  end

  # Lets a function write one value (a handle, a number) behind its last argument, and returns that value.
  def self.take(name, *arguments, type: "pointer")
    place = Fiddle::Pointer.malloc(8, Fiddle::RUBY_FREE)
    call(name, *arguments, place)
    place[0, 8].unpack1(PACKED.fetch(type))
  end

  # A struct of the library by its name, with the library's defaults; fields by their names, arrays as arrays.
  class Struct
    attr_reader :memory

    def initialize(name)
      described = ABI["structs"].fetch(name)
      @fields = described["fields"].to_h { |field| [field["name"], field] }
      @memory = Fiddle::Pointer.malloc(described["size"], Fiddle::RUBY_FREE)
      @kept = {} # texts that the struct points at live as long as it
      Gangway.call("#{name}_init", @memory, described["size"]) if ABI["functions"].key?("#{name}_init")
    end

    def []=(name, value)
      field = @fields.fetch(name)
      @kept[name] = value
      value = Fiddle::Pointer[value].to_i if value.is_a?(String)
      bytes = [*value].pack("#{PACKED.fetch(field['type'])}*")
      raise ArgumentError, "#{name} has room for #{field['count']} values" if bytes.bytesize > field["size"]

      @memory[field["offset"], bytes.bytesize] = bytes
    end

    def [](name)
      field = @fields.fetch(name)
      values = @memory[field["offset"], field["size"]].unpack("#{PACKED.fetch(field['type'])}*")
      field["count"] ? values : values[0]
    end
  end
end
